"""Read a topic as a member of a group, until nothing comes for five seconds: python examples/consume.py [HOST:PORT] [TOPIC]"""

import sys

from kraftlog import Consumer


def main(servers: str = "localhost:9092", topic: str = "greetings") -> None:
    with Consumer(bootstrap_servers=servers, group_id="examples", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while batches := consumer.poll(timeout_ms=5_000):
            for partition, records in batches.items():
                for record in records:
                    print(f"{partition} offset {record.offset}: {record.key!r} = {record.value!r}")
            consumer.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
