"""Provisioner for Pods that run no programs: volumes without folders."""


class NoFolders:
    """Provisioner whose volumes exist as objects only. Nothing ever fails."""

    def path_of(self, name: str) -> str:
        """Return a path that is never used."""
        return f"/volumes/{name}"

    async def make(self, name: str, size: int, promised: int) -> str:
        """Do nothing."""
        return ""

    async def delete(self, name: str) -> str:
        """Do nothing."""
        return ""

    async def sweep(self, names: frozenset[str]) -> None:
        """Do nothing."""
