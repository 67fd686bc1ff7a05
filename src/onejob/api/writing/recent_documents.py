"""Documents as the last writes left them: split, with what was read of them decoded.

An object that was written a moment ago is mostly written again, as every Pod is. Its next write
continues with the document that was staged instead of splitting the stored bytes anew. Nothing but
time depends on this.
"""

from collections import OrderedDict
from typing import Final

from onejob.api.sections import SectionedDocument, sectioned
from onejob.objects.meta import Key
from onejob.store.base import Stored

#: Pods that run at the same time, mostly: a finished one is not kept. With fewer than there are,
#: each is dropped just before its next write.
_MOST: Final = 4096
#: Longer ones are split each time: the memory is bounded in bytes, too.
_LONGEST: Final = 16 * 1024


class RecentDocuments:
    def __init__(self) -> None:
        self._documents = OrderedDict[Key, tuple[bytes, SectionedDocument]]()

    def __len__(self) -> int:
        return len(self._documents)

    def take(self, stored: Stored) -> SectionedDocument:
        """The document of a stored version. It is not kept any longer: a write that is refused may
        have changed parts of it."""
        kept = self._documents.pop(stored.key, None)
        # A version that was rolled back is another one, whatever its revision.
        if kept is not None and kept[0] is stored.value:
            return kept[1]
        return sectioned(stored.value)

    def keep(self, staged: Stored, document: SectionedDocument) -> None:
        """Nobody may change the document after this."""
        if len(staged.value) > _LONGEST:
            return
        self._documents[staged.key] = (staged.value, document)
        if len(self._documents) > _MOST:
            self._documents.popitem(last=False)
