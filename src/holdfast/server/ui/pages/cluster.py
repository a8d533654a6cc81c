"""The local cluster, and the room that jobs have on this machine."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.client import models
from holdfast.server.ui import dialogs
from holdfast.server.ui.here import Here, text_of
from holdfast.server.ui.html import element
from holdfast.server.ui.live import Live
from holdfast.server.ui.pages.frame import built, page_at
from holdfast.server.ui.shell import heading, nothing, page, panel
from holdfast.server.ui.widgets import Column, Facts, Table

LOOK_SECONDS = 2.0
MEMBERS = (
    Column(name="name", label="Member", head=True),
    Column(name="state", label="State", kind="state"),
    Column(name="pid", label="Process", kind="text"),
    Column(name="cores", label="Cores", kind="number"),
    Column(name="cores_used", label="In use", kind="number"),
    Column(name="executors", label="Executors"),
    Column(name="memory", label="Memory"),
    Column(name="since", label="Since", kind="time"),
    Column(name="actions", label="Actions", kind="actions"),
)
CLAIMS = (
    Column(name="job", label="Job", head=True, href="address"),
    Column(name="cores", label="Cores", kind="number"),
    Column(name="memory", label="Memory", kind="bytes"),
)


def register() -> None:
    @page_at("/cluster")
    async def cluster(request: Request) -> Response | None:
        return await built(request, build)


async def build(here: Here) -> None:
    await ClusterPage(here).build()


class ClusterPage:
    def __init__(self, here: Here) -> None:
        self._here = here

    async def build(self) -> None:
        with page(self._here, "Cluster", place="/cluster") as notice:
            heading("Cluster")
            with panel("Master, workers and executors", tight=True) as self._cluster:
                self._members = Table("Members of the cluster", MEMBERS, act=self._act)
            with panel() as self._none:
                nothing(
                    "No cluster runs on this machine",
                    "Jobs run with the master that the settings name. A standalone cluster "
                    "on this machine, to see jobs survive the loss of a worker:",
                    command="holdfast cluster up --workers 2",
                )
            with element("div", "columns"):
                with panel("Room for jobs", tight=False):
                    self._session = Facts()
                    self._claims = Table("What jobs have taken", CLAIMS, empty="No job runs.")
                with panel("Server"):
                    self._server = Facts()
            await self._read()
            self._live = Live(self._here, self._read, notice=notice, slow=LOOK_SECONDS)

    async def _read(self) -> None:
        ask, service = self._here.ask, self._here.service
        cluster = await ask(service.cluster.get)
        self._cluster.set_visibility(bool(cluster.members))
        self._none.set_visibility(not cluster.members)
        self._members.rows([member_row(each, self._here.why_not) for each in cluster.members])
        session = await ask(service.machine.session)
        self._session.items(session_facts(session))
        self._claims.rows(
            [
                {"key": each.job, "address": f"/jobs/{each.job}", **each.model_dump()}
                for each in session.claims
            ]
        )
        self._server.items(server_facts(await ask(service.machine.info), cluster))

    async def _act(self, _: str, member: str) -> None:
        await dialogs.kill_worker(self._here, member)
        self._live.soon()


def member_row(member: models.ClusterMember, why_not: str) -> dict[str, Any]:
    actions = []
    if member.name.startswith("worker"):
        gone = "" if member.pid is not None else "Its process is gone."
        actions = [
            {"name": "kill", "label": "Kill…", "danger": True, "reason": why_not or gone}
        ]
    return {
        "key": member.name,
        **member.model_dump(mode="json", exclude={"since", "executors"}),
        "executors": ", ".join(f"process {pid}" for pid in member.executors),
        "since": text_of(member.since),
        "actions": actions,
    }


def session_facts(session: models.Session) -> list[dict[str, Any]]:
    no_limit = "no limit"
    return [
        {"label": "Cores in use", "value": session.cores_used, "kind": "number"},
        {"label": "Cores in all", "value": session.cores or no_limit},
        {"label": "Memory in use", "value": session.memory_used, "kind": "bytes"},
        {
            "label": "Memory in all",
            "value": session.memory or no_limit,
            "kind": "bytes" if session.memory else "text",
        },
    ]


def server_facts(info: models.ServerInfo, cluster: models.Cluster) -> list[dict[str, Any]]:
    return [
        {"label": "holdfast", "value": info.version},
        {"label": "Spark", "value": info.spark},
        {"label": "Running since", "value": text_of(info.started), "kind": "time"},
        {"label": "Jobs known", "value": info.jobs, "kind": "number"},
        {"label": "Default master", "value": info.master, "kind": "mono"},
        {"label": "Cluster", "value": cluster.url, "kind": "mono"},
        {"label": "Home", "value": info.home, "kind": "mono", "wide": True},
        {"label": "Savepoints", "value": info.savepoints, "kind": "mono", "wide": True},
        {"label": "Registry", "value": info.registry, "kind": "mono", "wide": True},
        {
            "label": "Files may be started below",
            "value": ", ".join(info.job_roots) or "nothing; see the setting server_job_roots",
            "kind": "mono",
            "wide": True,
        },
    ]
