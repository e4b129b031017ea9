"""Clauses 2 and 5: a child that writes is killed; and two at once, where the store allows that.

The child imports the file that the kit's subclass is in, makes one, opens its store at the same place and
puts pages, saying which were acknowledged. Its file must not do work when it is imported.
"""

from __future__ import annotations

import inspect
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hicache.testing.stores.base import ABSENT, HIT, Base, all_are, name

#: Sizes of the pages that children write, in turn.
SIZES = (100, 5000, 70_000)
#: Pages of a batch.
BATCH = 8


def page_name(round_: int, number: int) -> bytes:
    """The key of a child's page."""
    return name(("child", round_, number))


class Crash(Base):
    """What is left of a process that died."""

    def child(self, where: Path, round_: int, batches: int) -> subprocess.Popen[bytes]:
        """Puts so many batches of the round's pages (0: without end), and says so after each."""
        kind = type(self)
        file = inspect.getfile(kind)
        command = [sys.executable, "-m", "hicache.testing.stores.child", file, kind.__qualname__, str(where)]
        return subprocess.Popen([*command, str(round_), str(batches)], stdout=subprocess.PIPE)

    def test_killed_while_it_writes(self, tmp_path: Path) -> None:
        """Clauses 2 and 5: after `kill -9` what was acknowledged is there, and nothing is half there."""
        if not self.persistent:
            pytest.skip("this store keeps nothing")
        where, dice = tmp_path / "store", random.Random(5)
        counts: list[int] = []
        for round_ in range(self.kills):
            child = self.child(where, round_, 0)
            assert child.stdout is not None
            said = [child.stdout.readline()]  # it writes by now
            time.sleep(dice.uniform(0, 0.15))
            child.send_signal(signal.SIGKILL)
            said += child.stdout.readlines()
            child.wait()
            assert child.returncode == -signal.SIGKILL, "the child ended by itself: see its error above"
            counts.append(sum(line == b"put\n" for line in said))
            with self.open(where) as store:
                for earlier, count in enumerate(counts):
                    self._look(store, earlier, count)

    def _look(self, store: object, round_: int, acknowledged: int) -> None:
        for batch in range(acknowledged + 2):
            keys = [page_name(round_, batch * BATCH + at) for at in range(BATCH)]
            found = self.get(store, keys, SIZES[batch % len(SIZES)])  # type: ignore[arg-type]
            assert set(found) <= {HIT, ABSENT}, f"clause 2: left by a process that died: {found}"
            if batch < acknowledged:
                all_are(HIT, found, f"clause 5: acknowledged, and lost with the process (batch {batch})")

    def test_two_processes(self, tmp_path: Path) -> None:
        """Clause 8: two processes put the same pages at the same place, where the store allows that."""
        if not (self.persistent and self.shared):
            pytest.skip("this store is one process's at a time")
        where = tmp_path / "store"
        with self.open(where) as store:
            children = [self.child(where, 0, 20) for _ in range(2)]
            for child in children:
                out, _ = child.communicate(timeout=5 * self.patience)
                assert child.returncode == 0, "a child failed: see its error above"
                assert out.count(b"put\n") == 20, "clause 8: a put of two processes' wasn't acknowledged"
            self._look(store, 0, 20)
