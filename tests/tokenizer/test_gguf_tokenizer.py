import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ggml_metadata import byte_level_metadata, sentencepiece_metadata
from tokenizers import Regex, pre_tokenizers

from minisgl.tokenizer import Tokenizer
from minisgl.tokenizer.gguf_tokenizer import tokenizer_from_gguf
from minisgl.utils.model_store import resolve_model

# Made by transformers 5.24: AutoTokenizer.from_pretrained(folder, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf").
SMOLLM2_IDS = [
    ("", []),
    ("The capital of France is", [504, 3575, 282, 4649, 314]),
    ("<|im_start|>user\nhi<|im_end|>\n", [1, 4093, 198, 6004, 2, 198]),
    ("🦀 ď 한글 世界", [10813, 116, 218, 24488, 233, 216, 33085, 246, 181, 133, 218, 216, 7906, 240, 178, 239, 230]),
    ("a\x00b", [81, 190, 82]),
    ("  two  spaces\n\n\ttab ", [216, 827, 216, 5600, 1116, 197, 15999, 216]),
    (
        "x = 1234567.89; y -= 0x1F",
        [104, 446, 216, 33, 34, 35, 36, 37, 38, 39, 30, 40, 41, 43, 329, 20673, 216, 32, 104, 33, 54],
    ),
    ("It's we'll DON'T", [1589, 506, 392, 3060, 422, 2154, 23, 68]),
    ("<|im_end", [44, 108, 306, 79, 486]),
    ("naïve café — “quoted”", [3546, 46494, 37366, 1841, 619, 385, 5036, 573]),
    ("é", [85, 151, 219]),
    ("\r\n\r\nEnd", [7209, 198, 13182]),
]
ALPHABET = [
    "a",
    "B",
    " ",
    "  ",
    "\n",
    "\t",
    "1",
    "23",
    "é",
    "世",
    "🦀",
    "'s",
    "\0",
    "½",
    "\r\n",
    "\u0301",
    "<|im_end|>",
    "<|",
]


def build(metadata):
    return Tokenizer(tokenizer_from_gguf(metadata))


def words(tokenizer, text):
    """The text's tokens, spelled as the vocabulary spells them."""
    return tokenizer.hf.convert_ids_to_tokens(tokenizer.encode(text).tolist())


@pytest.mark.parametrize(
    "metadata",
    [
        byte_level_metadata(),
        byte_level_metadata(bos_token_id=20, padding_token_id=21, add_bos_token=True, add_eos_token=True),
        byte_level_metadata(bos_token_id=None, eos_token_id=None),
        sentencepiece_metadata(),
        sentencepiece_metadata(unknown_token_id=5, add_space_prefix=False),
    ],
)
def test_the_object_of_transformers_encodes_the_same(metadata):
    tokenizer = build(metadata)
    theirs = tokenizer.hf.backend_tokenizer
    assert repr(theirs.get_added_tokens_decoder()) == repr(tokenizer.backend.get_added_tokens_decoder())
    assert theirs.get_vocab() == tokenizer.backend.get_vocab()
    assert len(tokenizer.hf) == tokenizer.vocab_size
    for text in ("hello </s><note> ab abc", "<unk>12", ""):
        assert tokenizer.hf(text).input_ids == tokenizer.encode(text).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("text", "ids"), SMOLLM2_IDS)
def test_smollm2_gives_the_ids_that_transformers_gives(smollm2, text, ids):
    assert smollm2.encode(text).tolist() == ids
    assert smollm2.decode(ids, skip_special_tokens=False) == text


@pytest.mark.slow
def test_smollm2_has_its_special_tokens_and_chat_template(smollm2):
    assert (smollm2.hf.bos_token_id, smollm2.hf.eos_token_id, smollm2.vocab_size) == (1, 2, 49_152)
    assert smollm2.special_ids == frozenset(range(17))
    ids = smollm2.apply_chat_template([{"role": "user", "content": "Say hi"}]).tolist()
    assert ids[-11:] == [1, 4093, 198, 36218, 15876, 2, 198, 1, 520, 9531, 198]
    assert len(ids) == 32


@pytest.mark.nightly
@pytest.mark.slow
def test_smollm2_equals_transformers_on_random_texts(smollm2):
    from transformers import AutoTokenizer

    path = resolve_model("smollm2")
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    rng = random.Random(0)
    for _ in range(5_000):
        text = "".join(rng.choices(ALPHABET, k=rng.randint(0, 30)))
        assert smollm2.encode(text).tolist() == theirs(text).input_ids, repr(text)


def test_an_unknown_kind_of_tokenizer_is_refused_by_name():
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.model='rwkv' is not supported"):
        build(byte_level_metadata(model="rwkv"))


def test_a_file_without_tokenizer_is_refused():
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.model=None"):
        build({})


def test_an_unknown_pre_tokenizer_is_refused_by_name():
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.pre='chameleon' is not supported"):
        build(byte_level_metadata(pre="chameleon"))


def test_a_missing_list_is_refused_by_name():
    with pytest.raises(ValueError, match=r"no tokenizer\.ggml\.merges"):
        build(byte_level_metadata(merges=None))


def test_merges_of_texts_that_are_no_tokens_are_left_out():
    assert words(build(byte_level_metadata(merges=["h e", "zz top"])), "hehe") == ["he", "he"]


@pytest.mark.parametrize(("pre", "pieces"), [("gpt-2", ["12"]), ("qwen2", ["1", "2"]), ("llama-bpe", ["12"])])
def test_each_pre_tokenizer_cuts_digits_its_own_way(pre, pieces):
    assert words(build(byte_level_metadata(pre=pre, add_bos_token=False)), "12") == pieces


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("olmo", ["AbCd", "'s", " 1234", " x", "/", "\n", "\n", "YZ"]),
        ("refact", ["AbCd", "'s", " ", "1", "2", "3", "4", " x", "/", "\n", "\n", "YZ"]),
        ("qwen2", ["AbCd", "'s", " ", "1", "2", "3", "4", " x", "/\n\n", "YZ"]),
        ("megrez", ["AbCd", "'s", " ", "1", "2", "3", "4", " x", "/\n\n", "YZ"]),
        ("seed-coder", ["AbCd", "'s", " ", "1", "2", "3", "4", " x", "/", "\n\n", "YZ"]),
        ("deepseek-llm", ["AbCd", "'", "s", " ", "1", "2", "3", "4", " x", "/", "\n", "\n", "YZ"]),
        ("deepseek-coder", ["AbCd", "'", "s", " ", "1", "2", "3", "4", " x", "/", "\n", "\n", "YZ"]),
        ("deepseek-v3", ["AbCd", "'s", " ", "123", "4", " x", "/\n\n", "YZ"]),
        ("mellum", ["AbCd", "'s", " 1234", " x", "/", "\n", "\n", "YZ"]),
        ("a.x-4.0", ["AbCd", "'s", " 1234", " x", "/", "\n", "\n", "YZ"]),
        ("trillion", ["AbCd", "'s", " 1234", " x", "/", "\n", "\n", "YZ"]),
        ("minerva-7b", ["AbCd", "'s", " ", "1", "2", "3", "4", " x", "/", "\n", "\n", "YZ"]),
        ("starcoder", ["AbCd", "'s", " ", "1", "2", "3", "4", " x", "/", "\n", "\n", "YZ"]),
        ("falcon3", ["AbCd", "'s", " ", "123", "4", " x", "/\n\n", "YZ"]),
        ("midm-2.0", ["AbCd", "'s", " ", "123", "4", " x", "/\n\n", "YZ"]),
        ("pixtral", ["AbCd", "'s", " ", "123", "4", " x", "/\n\n", "YZ"]),
        ("dbrx", ["AbCd", "'s", " ", "123", "4", " x", "/\n\n", "YZ"]),
        ("smaug-bpe", ["AbCd", "'s", " ", "123", "4", " x", "/\n\n", "YZ"]),
        ("gpt-4o", ["Ab", "Cd's", " ", "123", "4", " x", "/\n\n", "YZ"]),
        ("tekken", ["Ab", "Cd", "'s", " ", "1", "2", "3", "4", " x", "/\n\n", "YZ"]),
    ],
)
def test_each_pre_tokenizer_cuts_words_its_own_way(pre, pieces):
    text = "AbCd's 1234 x/\n\nYZ"
    cut = build(byte_level_metadata(pre=pre)).backend.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in cut] == pieces


def test_refact_cuts_texts_as_two_steps_of_hugging_face_do_digits_first():
    """The pre-tokenizer that the tokenizer.json of Granite 3 has."""
    digits, gpt2 = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs = pre_tokenizers.Sequence([digits, gpt2])
    ours = build(byte_level_metadata(pre="refact")).backend.pre_tokenizer
    rng = random.Random(0)
    for text in ("".join(rng.choices(ALPHABET, k=12)) for _ in range(500)):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), repr(text)


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
HAN_AND_HANGUL = "[一-龥\u0800-一가-\ud7ff]+"
CASED_LLM = (  # the letters of the file as they are, but for those that editors compose
    "[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3"
    "ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
)
PUNCTUATION_LLM = "[!-/:-~！-／：-～‘-‟\u3000-。]+"
V3_WORDS = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


DIGITS = pre_tokenizers.Digits(individual_digits=True)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
# The steps before the last one, ByteLevel without a pattern, that the tokenizer.json of each model has.
HUGGING_FACE = {
    "midm-2.0": [split(LLAMA3, "removed", invert=True)],
    "deepseek-llm": [
        *(split("[\r\n]"), split(rf"\s?{CASED_LLM}"), split(rf"\s?{PUNCTUATION_LLM}"), split(r"\s+$")),
        *(split(HAN_AND_HANGUL), DIGITS),
    ],
    "deepseek-coder": [
        *(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(HAN_AND_HANGUL), DIGITS),
    ],
    "deepseek-v3": [split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(V3_WORDS)],
    "seed-coder": [
        split(
            "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+"
            "|\\s+(?!\\S)|\\s+"
        )
    ],
}
VARIED = [
    *(
        "a",
        "Bc",
        "don",
        "'s",
        "'LL",
        "'re",
        "’s",
        " ",
        "  ",
        "   ",
        "\t",
        "\n",
        "\r\n",
        "\n\n",
        "\u00a0",
        "\u3000",
        "\u2029",
    ),
    *(
        "1",
        "23",
        "4567",
        "½",
        "Ⅻ",
        "٣",
        "0x1F",
        "世界",
        "ひらがな",
        "カタカナ",
        "한글",
        "ไทย",
        "नमस्ते",
        "é",
        "e\u0301",
        "Ω",
        "\u2126",
    ),
    *(
        "🦀",
        "👩‍👩‍👧",
        "❤️",
        ".",
        "...",
        "!?",
        "—",
        "“",
        "、",
        "。",
        "(",
        ")",
        "_",
        "$",
        "+",
        "=",
        "`",
        "~",
        "#",
        "/",
        "\\",
        "<|",
        "ǅ",
        "ß",
    ),
    *("Привет", "مرحبا", "שלום", "K", "\u212a", "ﬁ", "Ａ", "１", "𐐀", "\ufeff", "\0"),
]


@pytest.mark.parametrize("pre", HUGGING_FACE)
def test_texts_are_cut_as_the_models_own_files_say(pre):
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    theirs = pre_tokenizers.Sequence([*HUGGING_FACE[pre], to_bytes])
    ours = build(byte_level_metadata(pre=pre)).backend.pre_tokenizer
    rng = random.Random(0)
    texts = ["".join(pair) for pair in itertools.product(VARIED, repeat=2)]
    texts += ["".join(rng.choices(VARIED, k=rng.randint(3, 30))) for _ in range(2_000)]
    for text in texts:
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), repr(text)


@pytest.mark.parametrize("pre", ["starcoder", "minerva-7b"])
def test_single_digits_come_before_words_as_in_the_models_own_files(pre):
    theirs = pre_tokenizers.Sequence([DIGITS, GPT2])
    ours = build(byte_level_metadata(pre=pre)).backend.pre_tokenizer
    for text in ("".join(pair) for pair in itertools.product(VARIED, repeat=2)):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), repr(text)


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [("llama-bpe", ["whole"]), ("tekken", ["whole"]), ("falcon3", ["whole"]), ("dbrx", list("whole"))],
)
def test_whole_words_of_the_vocabulary_need_no_merges_where_the_kind_says_so(pre, pieces):
    metadata = byte_level_metadata(pre=pre, add_bos_token=False)
    metadata["tokenizer.ggml.tokens"].append("whole")
    metadata["tokenizer.ggml.token_type"].append(1)
    assert words(build(metadata), "whole") == pieces


def test_qwen2_composes_characters_first():
    qwen, gpt2 = build(byte_level_metadata(pre="qwen2")), build(byte_level_metadata())
    assert qwen.encode("e\u0301").tolist() == qwen.encode("é").tolist()
    assert gpt2.encode("e\u0301").tolist() != gpt2.encode("é").tolist()


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"add_bos_token": True}, 0),
        ({"add_bos_token": False}, None),
        ({}, None),
        ({"pre": "llama-bpe"}, 0),
        ({"pre": "llama-bpe", "add_bos_token": False}, None),
        ({"pre": "tekken"}, 0),
        ({"pre": "pixtral"}, 0),
        ({"pre": "falcon3"}, None),
        ({"pre": "deepseek-llm"}, None),
        ({"pre": "dbrx"}, None),
        ({"add_bos_token": True, "bos_token_id": None}, None),
    ],
)
def test_bos_is_added_when_the_file_or_its_kind_says_so(changes, first):
    tokenizer = build(byte_level_metadata(**changes))
    hello = tokenizer.hf.convert_tokens_to_ids("hello")
    assert tokenizer.encode("hello").tolist() == [*([] if first is None else [first]), hello]


def test_eos_is_added_when_the_file_says_so():
    ids = build(byte_level_metadata(add_bos_token=True, add_eos_token=True)).encode("hello").tolist()
    assert (ids[0], ids[-1], len(ids)) == (0, 1, 3)


def test_sentencepiece_puts_a_space_and_bos_before_the_text(tiny_spm):
    assert words(tiny_spm, "abc") == ["<s>", "▁abc"]
    assert words(tiny_spm, " a") == ["<s>", "▁", "▁a"]


def test_sentencepiece_without_prefix_keeps_the_text_as_it_is():
    tokenizer = build(sentencepiece_metadata(add_space_prefix=False, add_bos_token=False))
    assert words(tokenizer, "abc") == ["ab", "c"]
    assert tokenizer.decode(tokenizer.encode(" abc")) == " abc"


def test_sentencepiece_falls_back_to_bytes(tiny_spm):
    assert words(tiny_spm, "世") == ["<s>", "▁", "<0xE4>", "<0xB8>", "<0x96>"]
    assert tiny_spm.decode(tiny_spm.encode("a世 b")) == "a世 b"


def best_first(text, metadata):
    """Sentencepiece by the book: join the neighbours whose union scores best, leftmost first, until none is a token."""
    scores = dict(zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"], strict=True))
    symbols = list("▁" + text.replace(" ", "▁"))
    while True:
        joins = [(scores[a + b], -i) for i, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in scores]
        if not joins:
            return symbols
        at = -max(joins)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


@settings(max_examples=300, deadline=None)
@given(text=st.text("abc ", max_size=12))
def test_sentencepiece_merges_follow_the_scores(tiny_spm, text):
    expected = best_first(text, sentencepiece_metadata()) if text else []
    assert words(tiny_spm, text)[1:] == expected


@pytest.mark.parametrize("name", ["bos", "eos", "unknown"])
@pytest.mark.parametrize("token_id", [-1, 265, 2**32 - 1])
def test_a_special_id_outside_the_vocabulary_is_refused_by_key_and_value(name, token_id):
    with pytest.raises(ValueError, match=rf"tokenizer\.ggml\.{name}_token_id={token_id} is outside the 265 tokens"):
        build(byte_level_metadata(**{f"{name}_token_id": token_id}))


def test_padding_outside_the_vocabulary_is_none():
    assert build(byte_level_metadata(padding_token_id=2**32 - 1)).hf.pad_token is None


def test_phi3_s_tokens_eat_the_space_behind_them_and_no_others_do():
    """As in Phi-3's tokenizer.json; llama.cpp goes by the model's name."""
    metadata = sentencepiece_metadata(add_bos_token=False)
    metadata["tokenizer.ggml.tokens"] += ["<|end|>", "<|endoftext|>"]
    metadata["tokenizer.ggml.token_type"] += [3, 3]
    metadata["tokenizer.ggml.scores"] += [0.0, 0.0]
    phi3 = metadata | {"general.architecture": "phi3"}
    assert words(build(phi3), "<|end|>\n  a") == ["<|end|>", "▁a"]
    assert words(build(phi3), "<|endoftext|>\n") == ["<|endoftext|>", "▁", "<0x0A>"]
    assert words(build(metadata), "<|end|>\n") == ["<|end|>", "▁", "<0x0A>"]


CHAT = [{"role": "user", "content": "hello"}]


def test_a_file_may_have_templates_by_name():
    named = {
        "tokenizer.chat_template": "plain {{ messages[0].content }}",
        "tokenizer.chat_templates": ["tool_use", "rag", "lost"],
        "tokenizer.chat_template.tool_use": "tools {{ tools | length }}",
        "tokenizer.chat_template.rag": "rag",
    }
    tokenizer = build(byte_level_metadata() | named)
    assert tokenizer.render(CHAT) == "plain hello"
    tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}
    assert tokenizer.render(CHAT, tools=[tool]) == "tools 1"
    del named["tokenizer.chat_template"]
    with pytest.raises(ValueError, match="no default chat template; name one of tool_use, rag"):
        build(byte_level_metadata() | named).render(CHAT)
