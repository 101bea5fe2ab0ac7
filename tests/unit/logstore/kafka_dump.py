"""What `kafka-dump-log` prints, and the same made from what `kraftctl log inspect --format json` prints."""

import re
from typing import Any

Lines = list[dict[str, str]]

_RECORD = re.compile(
    r"\| offset: (-?\d+) (\w+): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+) headerKeys: \[(.*?)\](.*)"
)


def parse_dump(output: str) -> dict[str, Lines]:
    """The `key: value` pairs of each line, by the path of the file that the lines are about; records as `record_line`."""
    dumped: dict[str, Lines] = {}
    lines: Lines = []
    for line in output.splitlines():
        if line.startswith("Dumping "):
            lines = dumped.setdefault(line.removeprefix("Dumping "), [])
        elif record := _RECORD.match(line):
            names = ("offset", "stamp", "timestamp", "keySize", "valueSize", "sequence", "headerKeys", "rest")
            lines.append(dict(zip(names, record.groups(), strict=True)))
        elif line.startswith(("baseOffset", "producerId", "version", "offset", "timestamp")):
            lines.append({key: value.rstrip(",") for key, value in re.findall(r"(\w+): (\S+)", line)})
    return dumped


def batch_line(batch: dict[str, Any]) -> dict[str, str]:
    horizon = batch["delete_horizon_ms"]
    stamp = "CreateTime" if batch["timestamp_type"] == "CREATE_TIME" else "LogAppendTime"
    return _as_text({
        "baseOffset": batch["base_offset"],
        "lastOffset": batch["last_offset"],
        "count": batch["record_count"],
        "baseSequence": batch["base_sequence"],
        "lastSequence": batch["last_sequence"],
        "producerId": batch["producer_id"],
        "producerEpoch": batch["producer_epoch"],
        "partitionLeaderEpoch": batch["leader_epoch"],
        "isTransactional": str(batch["is_transactional"]).lower(),
        "isControl": str(batch["is_control"]).lower(),
        "deleteHorizonMs": "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]",
        "position": batch["position"],
        stamp: batch["max_timestamp"],
        "size": batch["size_bytes"],
        "magic": 2,
        "compresscodec": batch["compression"],
        "crc": batch["crc"],
        "isvalid": str(batch["is_crc_valid"]).lower(),
    })  # fmt: skip


def record_line(record: dict[str, Any], batch: dict[str, Any]) -> dict[str, str]:
    """A record with a printable key and value, or a marker."""
    key, value = record["key"], record["value"]
    sequence = batch["base_sequence"]
    if sequence >= 0:
        sequence = (sequence + record["offset"] - batch["base_offset"]) % (1 << 31)
    if batch["is_control"]:
        epoch = int.from_bytes(value.encode("latin-1")[2:6])
        rest = f" endTxnMarker: {'COMMIT' if key[3] == chr(1) else 'ABORT'} coordinatorEpoch: {epoch}"
    else:
        rest = ("" if key is None else f" key: {key}") + ("" if value is None else f" payload: {value}")
    return _as_text({
        "offset": record["offset"],
        "stamp": "CreateTime" if batch["timestamp_type"] == "CREATE_TIME" else "LogAppendTime",
        "timestamp": record["timestamp"],
        "keySize": -1 if key is None else len(key),
        "valueSize": -1 if value is None else len(value),
        "sequence": sequence,
        "headerKeys": ",".join(header["name"] for header in record["headers"]),
        "rest": rest,
    })  # fmt: skip


def aborted_line(aborted: dict[str, Any]) -> dict[str, str]:
    return _as_text({
        "version": 0,
        "producerId": aborted["producer_id"],
        "firstOffset": aborted["first_offset"],
        "lastOffset": aborted["last_offset"],
        "lastStableOffset": aborted["last_stable_offset"],
    })  # fmt: skip


def producer_line(producer: dict[str, Any]) -> dict[str, str]:
    first = producer["transaction_first_offset"]
    fields = {
        "producerId": producer["producer_id"],
        "producerEpoch": producer["producer_epoch"],
        "coordinatorEpoch": producer["coordinator_epoch"],
        "currentTxnFirstOffset": "OptionalLong.empty" if first is None else f"OptionalLong[{first}]",
        "lastTimestamp": producer["last_timestamp"],
    }
    if producer["batches"]:
        last = producer["batches"][-1]
        fields |= {
            "firstSequence": last["base_sequence"],
            "lastSequence": last["last_sequence"],
            "lastOffset": last["last_offset"],
            "offsetDelta": last["last_offset"] - last["first_offset"],
            "timestamp": last["timestamp"],
        }
    return _as_text(fields)


def last_of_each(lines: Lines) -> Lines:
    """A producer has an entry per batch in our snapshots; Kafka's reader takes the last one."""
    return list({line["producerId"]: line for line in lines}.values())


def entry_line(entry: dict[str, int]) -> dict[str, str]:
    """Of an offset or a time index."""
    return _as_text(entry)


def _as_text(fields: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in fields.items()}
