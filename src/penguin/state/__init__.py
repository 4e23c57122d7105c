"""Behaviour as files: the data root, project and agent configuration, prompts, secrets.

::

    paths          the one module that knows the layout of the data root
    project        ``.project_config.toml``: models, credentials, policies
    agent_files    ``agent_state/system_config.yaml``: prompt, limits, tools of one agent
    prompt         fills the system prompt template (the wording is in ``prompt_texts``)
    instructions   finds the ``AGENTS.md`` files that apply to a workspace
    vault          ``.vault.toml``: secrets for tool subprocesses
    workspace_env  the few keys that may be taken from a workspace's ``.env``

Below them: ``files`` (read, lock, replace), ``toml_file`` and ``yaml_file`` (parse, locate, edit),
``checking`` (typed values or a :class:`~penguin.protocol.errors.ConfigError` with its place).
"""
