"""Write ten records from asyncio: python examples/async_produce.py [HOST:PORT] [TOPIC]"""

import asyncio
import sys

from kraftlog import AsyncProducer


async def main(servers: str = "localhost:9092", topic: str = "greetings") -> None:
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        sending = [producer.send_and_wait(topic, f"hello {number}".encode(), key=b"async") for number in range(10)]
        for written in await asyncio.gather(*sending):
            print(f"{written.topic}-{written.partition} offset {written.offset} ({written.durability})")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
