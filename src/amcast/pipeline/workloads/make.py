"""Draws the tables of a workload: each block is a task of Spark's, or a part of one, and a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ...trace.limits import ROW_GROUP_ROWS
from ...trace.whole import new_folder
from ...workload.friends import BLOCK as USERS_BLOCK
from ...workload.friends import Int64s, cut, parts_of_followers
from ..waves import run_waves
from ..work import answers_of
from .gtpcc import BlockDrawing
from .plan import PLAN_FILE, GtpccTables, SocialTables, Tables, encode_plan

TRANSACTIONS, FOLLOWERS, USERS = "transactions", "followers", "users"
FOLLOWERS_SCHEMA = pa.schema(
    [
        pa.field("user", pa.int32(), nullable=False),
        pa.field("follower", pa.int32(), nullable=False),
        pa.field("near", pa.bool_(), nullable=False),
    ]
)
USERS_SCHEMA = pa.schema(
    [
        pa.field("user", pa.int32(), nullable=False),
        pa.field("grp", pa.int32(), nullable=False),  # that it belongs to
        pa.field("followers", pa.int32(), nullable=False),
        pa.field("groups", pa.int32(), nullable=False),  # in which it has followers
    ]
)
_WAVE_BLOCKS = 8  # of a job: finished jobs are what a progress bar can show

Progress = Callable[[int], None]  # so many blocks more are done


class _Task(msgspec.Struct, frozen=True):
    plan: Tables
    block: int
    folder: str


def make_gtpcc(spark: SparkSession, path: Path, plan: GtpccTables, progress: Progress) -> None:
    """Writes a new folder with the table of transactions; whole or not at all."""
    plan.check()
    with new_folder(path, "workload") as draft:
        (draft / TRANSACTIONS).mkdir()
        in_blocks(spark, plan, plan.blocks, draft, _write_transactions, progress)
        (draft / PLAN_FILE).write_bytes(encode_plan(plan))


def make_social(spark: SparkSession, path: Path, plan: SocialTables, progress: Progress) -> None:
    """Writes a new folder with the tables of followers and of users. METIS takes the whole graph, in this process."""
    plan.check()
    graph = plan.workload.graph()
    with new_folder(path, "workload") as draft:
        (draft / FOLLOWERS).mkdir()
        in_blocks(spark, plan, graph.blocks, draft, _write_followers, progress)
        _write_users(draft, plan)
        (draft / PLAN_FILE).write_bytes(encode_plan(plan))


def in_blocks(
    spark: SparkSession, plan: Tables, blocks: int, folder: Path, perform: Callable[[str], str], progress: Progress
) -> list[str]:
    """What tasks answered, in the order of the blocks."""
    answers: dict[int, list[str]] = {}

    def run(wave: int) -> list[str]:
        numbers = range(wave * _WAVE_BLOCKS, min(blocks, (wave + 1) * _WAVE_BLOCKS))
        tasks = [msgspec.json.encode(_Task(plan, block, str(folder.absolute()))).decode() for block in numbers]
        return answers_of(spark, tasks, perform)

    def take(wave: int, found: list[str]) -> None:
        answers[wave] = found
        progress(len(found))

    run_waves(spark, range(-(-blocks // _WAVE_BLOCKS)), run, take, "workload")
    return [answer for wave in sorted(answers) for answer in answers[wave]]


def task_of(text: str) -> tuple[Tables, int, Path]:
    task = msgspec.json.decode(text, type=_Task)
    return task.plan, task.block, Path(task.folder)


def block_file(folder: Path, table: str, block: int) -> Path:
    return folder / table / f"part-{block:06d}.parquet"


def _write(table: pa.Table, path: Path) -> str:
    lists = [f"{field.name}.list.element" for field in table.schema if pa.types.is_list(field.type)]
    pq.write_table(
        table,
        path,
        row_group_size=ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
        use_dictionary=[*lists, "kind", "home", "district", "customer_warehouse", "customer_district", "detail"],
    )
    return str(table.num_rows)


def _write_transactions(text: str) -> str:
    plan, block, folder = task_of(text)
    assert isinstance(plan, GtpccTables)
    return _write(BlockDrawing(plan, block).table(), block_file(folder, TRANSACTIONS, block))


def _write_followers(text: str) -> str:
    plan, block, folder = task_of(text)
    assert isinstance(plan, SocialTables)
    columns = plan.workload.graph().draw_block_told_apart(block)
    arrays = [pa.array(each).cast(field.type) for each, field in zip(columns, FOLLOWERS_SCHEMA, strict=True)]
    return _write(pa.Table.from_arrays(arrays, schema=FOLLOWERS_SCHEMA), block_file(folder, FOLLOWERS, block))


def _write_users(folder: Path, plan: SocialTables) -> None:
    graph = plan.workload.graph()
    user, follower = _read_followers(folder, graph.blocks)
    part = cut(graph.users, user, follower, plan.groups)
    followed, _ = parts_of_followers(graph.users, user, follower, part, plan.groups)
    columns = [
        np.arange(graph.users),
        part + 1,
        np.bincount(user, minlength=graph.users),
        np.bincount(followed, minlength=graph.users),
    ]
    arrays = [pa.array(each).cast(field.type) for each, field in zip(columns, USERS_SCHEMA, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=USERS_SCHEMA)
    (folder / USERS).mkdir()
    for block in range(graph.blocks):
        _write(table.slice(block * USERS_BLOCK, USERS_BLOCK), block_file(folder, USERS, block))


def _read_followers(folder: Path, blocks: int) -> tuple[Int64s, Int64s]:
    tables = [
        pq.read_table(block_file(folder, FOLLOWERS, block), columns=["user", "follower"]) for block in range(blocks)
    ]
    whole = pa.concat_tables(tables)
    user, follower = (whole.column(name).to_numpy().astype(np.int64) for name in ("user", "follower"))
    return user, follower
