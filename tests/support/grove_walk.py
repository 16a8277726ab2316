"""Random operations on a grove, checked against its account after each of them."""

import random

from support.grove import Grove


class Walk:
    """Prompts of up to 14 tokens of an alphabet of three."""

    def __init__(self, policy, seed):
        self.random = random.Random(seed)
        self.grove = Grove(policy)
        self.locked, self.recent = [], [()] * 8
        self.num_evicted = 0

    def prompt(self):
        """Often the start of an earlier one, and some more."""
        start = self.random.choice(self.recent) if self.random.random() < 0.8 else ()
        start = start[: self.random.randint(0, len(start))]
        tokens = start + tuple(self.random.choices(range(3), k=self.random.randint(0, 4)))
        self.recent[self.random.randrange(8)] = tokens
        return tokens[:14]

    def insert(self):
        node = self.grove.insert(self.prompt(), self.random.choice([-1, 0, 0, 2]))
        if self.random.random() < 0.3:
            self.lock(node)

    def match(self):
        node = self.grove.match(self.prompt())
        if self.random.random() < 0.4:
            self.lock(node)

    def lock(self, node):
        self.grove.lock(node)
        self.locked.append(node)

    def unlock(self):
        if self.locked:
            self.grove.unlock(self.locked.pop(self.random.randrange(len(self.locked))))

    def expect(self):
        if self.grove.accounts:
            node = self.random.choice(list(self.grove.accounts))
            self.grove.expect(node)

    def unexpect(self):
        expected = [node for node in self.grove.accounts if node.expected]
        if expected:
            self.grove.unexpect(self.random.choice(expected))

    def evict(self):
        for _ in range(self.random.randint(1, 4)):
            if len(self.grove.accounts) > 12 and self.grove.first_by_the_account() is not None:
                self.grove.evict(self.random.choice([None, None, 1, 2]))
                self.num_evicted += 1

    def merge(self):
        if self.grove.accounts:
            self.grove.merge(self.random.choice(list(self.grove.accounts)))

    def purge(self):
        unlocked = [node for node in self.grove.accounts if node.ref_count == 0]
        if unlocked and self.random.random() < 0.1:
            self.grove.purge(self.random.choice(unlocked))

    def step(self):
        operations = {
            self.insert: 30, self.match: 20, self.unlock: 25, self.expect: 8, self.unexpect: 8, self.evict: 20,
            self.merge: 10, self.purge: 4,
        }  # fmt: skip
        self.random.choices(list(operations), list(operations.values()))[0]()
        self.grove.check()

    def run(self, num_operations):
        for _ in range(num_operations):
            self.step()
        assert self.num_evicted > num_operations / 20
