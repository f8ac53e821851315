from collections.abc import Callable, Iterable, Mapping, Sequence

def attach(
    package_name: str,
    submodules: Iterable[str] | None = None,
    submod_attrs: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]: ...
