"""Several state kinds, a side output, and bad input records kept instead of lost."""

import holdfast as hf


class WatchUser(hf.KeyedProcess):
    """What a user has done so far; large deletions also go to a list for people to look at."""

    pages = hf.MapState("string", "bigint")
    largest = hf.ReducingState("bigint", max)
    mean = hf.AggregatingState(
        "sum double, n bigint",
        create=lambda: (0.0, 0),
        add=lambda acc, diff: (acc[0] + diff, acc[1] + 1),
        result=lambda acc: acc[0] / acc[1],
    )
    output = "user string, pages int, largest bigint, mean double"
    sides = {"deletions": "user string, page string, diff bigint"}  # noqa: RUF012

    def process(self, edit, ctx):
        self.pages[edit.page] = self.pages.get(edit.page, 0) + 1
        self.largest.add(abs(edit.diff))
        self.mean.add(edit.diff)
        if edit.diff < -450:
            yield hf.to("deletions", ctx.key, edit.page, edit.diff)
        yield ctx.key, len(self.pages), self.largest.value, self.mean.value


job = hf.Job("page-watch", checkpoint=hf.CheckpointConfig(interval="1 s"), parallelism=2)


@job.pipeline
def pipeline(flow: hf.Flow) -> None:
    edits = flow.source(
        "edits",
        hf.sources.FileLog(
            "edits-log",
            schema="user string, page string, diff bigint, ts timestamp",
            max_segments_per_epoch=5,
            on_bad_record="side",
        ),
    )
    watched = flow.key_by(edits, "user").process("watch", WatchUser())
    flow.sink("users", watched, hf.sinks.Files("out/users"))
    flow.sink("deletions", watched.side("deletions"), hf.sinks.Files("out/deletions", "json"))
    flow.sink("bad", edits.side("bad"), hf.sinks.Files("out/bad", "json"))
