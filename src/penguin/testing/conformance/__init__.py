"""Conformance kits: does a model or an environment of yours keep the contract?

Both kits run the real thing and raise `AssertionError` with readable text at the first break::

    async def test_my_model_keeps_the_contract():
        await check_llm(lambda: MyModel(...))

    async def test_my_environment_keeps_the_contract(tmp_path):
        environment = MyEnvironment(tmp_path)
        await check_environment(environment, calls=[("look", {"path": "."})], slow=("wait", {"seconds": 60}))
"""

from __future__ import annotations

from penguin.testing.conformance.environments import check_environment
from penguin.testing.conformance.models import check_llm

__all__ = ["check_environment", "check_llm"]
