"""Read the first records of a topic from asyncio: python examples/async_consume.py [HOST:PORT] [TOPIC] [COUNT]"""

import asyncio
import sys

from kraftlog import AsyncConsumer


async def main(servers: str = "localhost:9092", topic: str = "greetings", count: str = "10") -> None:
    left = int(count)
    async with AsyncConsumer(bootstrap_servers=servers, group_id="async", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        async for record in consumer:
            print(f"{record.topic}-{record.partition} offset {record.offset}: {record.value!r}")
            left -= 1
            if left == 0:
                break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
