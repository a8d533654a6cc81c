"""What processes of the server find in their environment."""

from __future__ import annotations

import pytest

from holdfast.control.surroundings import passed_on

LEFT_OUT = """
    LD_PRELOAD LD_AUDIT PYTHONSTARTUP PYTHONINSPECT BASH_ENV BASH_FUNC_ls%% NOTIFY_SOCKET
    LISTEN_FDS CREDENTIALS_DIRECTORY
"""
NEEDED = """
    PATH HOME LC_ALL TZ JAVA_HOME SPARK_HOME PYTHONPATH VIRTUAL_ENV HOLDFAST_FAULTS AWS_PROFILE
    KRB5_CONFIG SSL_CERT_FILE LD_LIBRARY_PATH https_proxy KAFKA_PASSWORD ENV JAVA_TOOL_OPTIONS
"""


@pytest.mark.parametrize("name", LEFT_OUT.split())
def test_sr12_what_would_run_code_or_is_the_servers_is_left_out(name: str) -> None:
    assert passed_on({name: "x", "PATH": "/bin"}) == {"PATH": "/bin"}
    assert passed_on({name: "x"}, [name]) == {name: "x"}


@pytest.mark.parametrize("name", NEEDED.split())
def test_what_a_job_may_need_is_passed_on(name: str) -> None:
    assert passed_on({name: "x"}) == {name: "x"}
