"""Types of the asyncio client's methods, derived from those of the blocking client.

At run time each function here returns the method it gets. The results differ because the asyncio
client runs calls by another caller.
"""

from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Generic, Iterator
from typing import Type, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
    T = TypeVar("T")

    class awaited(Generic[P, T]):  # pylint: disable=invalid-name
        """A method whose result is awaited."""

        def __init__(self, method: Callable[Concatenate[Any, P], T]) -> None: ...

        def __get__(self, instance: object, owner: Any) -> Callable[P, Awaitable[T]]: ...

    class iterated(Generic[P, T]):  # pylint: disable=invalid-name
        """A method whose result is for `async for`."""

        def __init__(self, method: Callable[Concatenate[Any, P], Iterator[T]]) -> None: ...

        def __get__(self, instance: object, owner: Any) -> Callable[P, AsyncIterator[T]]: ...

    class returning(Generic[P, T]):  # pylint: disable=invalid-name
        """A method that returns another type."""

        def __init__(self, result: Type[T], method: Callable[Concatenate[Any, P], Any]) -> None: ...

        def __get__(self, instance: object, owner: Any) -> Callable[P, T]: ...

else:

    def awaited(method):
        """A method whose result is awaited."""
        return method

    iterated = awaited

    def returning(_, method):
        """A method that returns another type."""
        return method
