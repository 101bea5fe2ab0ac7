"""Write ten records and say where they went: python examples/produce.py [HOST:PORT] [TOPIC]"""

import sys

from kraftlog import Producer


def main(servers: str = "localhost:9092", topic: str = "greetings") -> None:
    with Producer(bootstrap_servers=servers) as producer:
        futures = [producer.send(topic, f"hello {number}".encode(), key=b"example") for number in range(10)]
        for future in futures:
            written = future.result(timeout=30)
            print(f"{written.topic}-{written.partition} offset {written.offset} ({written.durability})")


if __name__ == "__main__":
    main(*sys.argv[1:])
