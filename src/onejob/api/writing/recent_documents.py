"""Cache of recently written documents in their parsed form.

A recently written object is likely to be written again, as every Pod is. Its next write continues
with the staged document, which is split and partly decoded, instead of splitting the stored bytes
anew. The cache affects performance only.
"""

from collections import OrderedDict
from typing import Final

from onejob.api.sections import SectionedDocument, sectioned
from onejob.objects.meta import Key
from onejob.store.base import Stored

#: Maximum number of documents. Most are those of running Pods; finished ones are not cached. If
#: more Pods run than fit, each is evicted just before its next write.
_MOST: Final = 4096
#: Maximum bytes of a cached document. Longer ones are split each time, which bounds the cache in
#: bytes as well.
_LONGEST: Final = 16 * 1024


class RecentDocuments:
    def __init__(self) -> None:
        self._documents = OrderedDict[Key, tuple[bytes, SectionedDocument]]()

    def __len__(self) -> int:
        return len(self._documents)

    def take(self, stored: Stored) -> SectionedDocument:
        """Return the document of a stored version and remove it from the cache.

        It is removed because a write that is refused later may have modified parts of it.
        """
        kept = self._documents.pop(stored.key, None)
        # Compared by identity: after a rollback, another version may have the same revision.
        if kept is not None and kept[0] is stored.value:
            return kept[1]
        return sectioned(stored.value)

    def keep(self, staged: Stored, document: SectionedDocument) -> None:
        """Cache a staged document, which must not be modified afterwards."""
        if len(staged.value) > _LONGEST:
            return
        self._documents[staged.key] = (staged.value, document)
        if len(self._documents) > _MOST:
            self._documents.popitem(last=False)
