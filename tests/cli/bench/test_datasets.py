import itertools

from minisgl.cli.bench.datasets import DATASETS, Shape

SHAPE = Shape(num_requests=10, input_len=12, prefix_len=40, num_groups=3, num_turns=4, seed=1)


def test_the_same_seed_asks_the_same_and_another_one_does_not():
    for make in DATASETS.values():
        assert make(SHAPE) == make(SHAPE)
        assert make(SHAPE) != make(Shape(10, 12, 40, 3, 4, seed=2))


def test_every_dataset_has_as_many_turns_as_were_asked_for():
    for make in DATASETS.values():
        assert sum(len(conversation.questions) for conversation in make(SHAPE)) == 10


def test_random_prompts_share_no_beginning():
    prompts = [conversation.questions[0] for conversation in DATASETS["random"](SHAPE)]
    for one, other in itertools.combinations(prompts, 2):
        assert one.split()[:3] != other.split()[:3]
    assert all(len(prompt.split()) == 12 for prompt in prompts)


def test_questions_are_below_so_many_system_prompts():
    systems = {conversation.system for conversation in DATASETS["shared-prefix"](SHAPE)}
    assert len(systems) == 3
    assert all(len(system.split()) == 40 for system in systems)


def test_the_last_conversation_is_shorter_when_turns_do_not_divide_the_requests():
    assert [len(conversation.questions) for conversation in DATASETS["multi-turn"](SHAPE)] == [4, 4, 2]
