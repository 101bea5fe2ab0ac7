#!/usr/bin/env bash
# Apache Kafka (KRaft, combined broker+controller nodes) from Maven artifacts, on loopback only.
#
#   peer_kafka.sh setup            fetch the jars into $PEERS_HOME/lib (idempotent)
#   peer_kafka.sh start [1|3]      fresh cluster: format + start, waits until every node says it started
#   peer_kafka.sh format [1|3]     wipe $KAFKA_DATA, write the configs and format, start nothing
#   peer_kafka.sh up [ID]          start every formatted node (or node ID) on its existing logs, no waiting
#   peer_kafka.sh wait             wait until every started node says it started
#   peer_kafka.sh stop             SIGTERM by pid, SIGKILL after 30 s
#   peer_kafka.sh kill9 ID         SIGKILL node ID
#   peer_kafka.sh pids | bootstrap | classpath
#   peer_kafka.sh tool CLASS ARGS  run org.apache.kafka.tools.CLASS (or a full class name)
#   peer_kafka.sh java FILE ARGS   run a single Java source file with Kafka's classes (needs a JDK)
#
# Environment: PEERS_HOME (jars, data, scratch; default ~/.cache/kraftlog-peers), KAFKA_DATA (log dirs, default
# $PEERS_HOME/data), KAFKA_VERSION (4.4.0), KAFKA_HEAP_OPTS (-Xmx1G -Xms1G, as kafka-server-start.sh has it),
# KAFKA_EXTRA (file with more server properties, appended).
set -euo pipefail
WORK=${PEERS_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/kraftlog-peers}
mkdir -p "$WORK"
KAFKA_VERSION=${KAFKA_VERSION:-4.4.0}
LOG4J_VERSION=${LOG4J_VERSION:-2.25.5}
LIB=$WORK/lib
DATA=${KAFKA_DATA:-$WORK/data}
HOST=127.0.0.1
# what bin/kafka-server-start.sh and bin/kafka-run-class.sh of the distribution set
HEAP=${KAFKA_HEAP_OPTS:--Xmx1G -Xms1G}
JVM_PERF="-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true"

die() { echo "peer_kafka: $*" >&2; exit 1; }

setup() {
  [ -e "$LIB/kafka_2.13-$KAFKA_VERSION.jar" ] && { echo "have $LIB"; return; }
  mkdir -p "$WORK/pom"
  cat > "$WORK/pom/pom.xml" <<X
<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kraftlog.benchmarks</groupId><artifactId>kafka-peer</artifactId><version>1</version>
  <packaging>pom</packaging>
  <properties><kafka.version>$KAFKA_VERSION</kafka.version><log4j.version>$LOG4J_VERSION</log4j.version></properties>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>\${kafka.version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>\${kafka.version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>\${kafka.version}</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>\${log4j.version}</version></dependency>
  </dependencies>
</project>
X
  (cd "$WORK/pom" && mvn -q -B dependency:copy-dependencies -DoutputDirectory="$LIB")
  [ -e "$LIB/kafka_2.13-$KAFKA_VERSION.jar" ] || die "mvn did not bring kafka_2.13-$KAFKA_VERSION.jar"
}

log4j_config() {  # level, file
  cat > "$2" <<X
status = error
appender.c.type = Console
appender.c.name = C
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = $1
rootLogger.appenderRef.c.ref = C
X
}

node_count() { [ -e "$DATA/nodes" ] && cat "$DATA/nodes" || die "nothing formatted in $DATA"; }
# ports are asked from the kernel when the cluster is formatted: a client and a controller port for each node
pick_ports() { python3 -c "import socket,sys
held=[socket.socket() for _ in range(2 * int(sys.argv[1]))]
for s in held: s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])" "$1" > "$DATA/ports"; }
client_port() { sed -n "$((2 * $1 - 1))p" "$DATA/ports"; }
controller_port() { sed -n "$((2 * $1))p" "$DATA/ports"; }
bootstrap() { local i out=; for i in $(seq "$(node_count)"); do out+=${out:+,}$HOST:$(client_port "$i"); done; echo "$out"; }
new_id() { python3 -c "import base64,uuid
while True:
    s=base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
    if s[0]!='-': print(s); break"; }
alive() { [ -e "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

format() {
  local n=${1:-1} i rf isr voters= quorum= cluster
  [ "$n" = 1 ] || [ "$n" = 3 ] || die "1 or 3 nodes"
  for i in 1 2 3; do alive "$DATA/$i/pid" && die "node $i of $DATA still runs: stop it first"; done
  rm -rf "$DATA"; mkdir -p "$DATA"; echo "$n" > "$DATA/nodes"; pick_ports "$n"
  rf=$n; isr=$(( n == 3 ? 2 : 1 )); cluster=$(new_id)
  for i in $(seq "$n"); do
    voters+=${voters:+,}$i@$HOST:$(controller_port "$i"):$(new_id)
    quorum+=${quorum:+,}$HOST:$(controller_port "$i")
  done
  log4j_config INFO "$DATA/log4j2.properties"
  for i in $(seq "$n"); do
    mkdir -p "$DATA/$i"
    # config/server.properties of the distribution, with ports, directories and replication filled in
    cat > "$DATA/$i/server.properties" <<X
process.roles=broker,controller
node.id=$i
controller.quorum.bootstrap.servers=$quorum
listeners=PLAINTEXT://$HOST:$(client_port "$i"),CONTROLLER://$HOST:$(controller_port "$i")
advertised.listeners=PLAINTEXT://$HOST:$(client_port "$i"),CONTROLLER://$HOST:$(controller_port "$i")
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=$DATA/$i/logs
num.partitions=1
num.recovery.threads.per.data.dir=2
default.replication.factor=$rf
min.insync.replicas=$isr
offsets.topic.replication.factor=$rf
share.coordinator.state.topic.replication.factor=$rf
share.coordinator.state.topic.min.isr=$isr
transaction.state.log.replication.factor=$rf
transaction.state.log.min.isr=$isr
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
X
    [ -z "${KAFKA_EXTRA:-}" ] || cat "$KAFKA_EXTRA" >> "$DATA/$i/server.properties"
    local how=(--initial-controllers "$voters"); [ "$n" != 1 ] || how=(--standalone)
    java -Xmx256M -cp "$LIB/*" -Dlog4j2.configurationFile="$DATA/log4j2.properties" kafka.tools.StorageTool \
      format -t "$cluster" -c "$DATA/$i/server.properties" "${how[@]}" > "$DATA/$i/format.out" 2>&1 ||
      { cat "$DATA/$i/format.out" >&2; die "format of node $i failed"; }
  done
}

up() {
  local i
  for i in ${1:-$(seq "$(node_count)")}; do
    alive "$DATA/$i/pid" && die "node $i already runs"
    # shellcheck disable=SC2086
    setsid nohup java $HEAP $JVM_PERF \
      "-Xlog:gc*:file=$DATA/$i/gc.log:time,tags:filecount=10,filesize=100M" \
      -Dlog4j2.configurationFile="$DATA/log4j2.properties" -cp "$LIB/*" kafka.Kafka "$DATA/$i/server.properties" \
      > "$DATA/$i/server.out" 2>&1 < /dev/null &
    echo $! > "$DATA/$i/pid"
  done
}

wait_up() {
  local i t
  for i in $(seq "$(node_count)"); do
    for t in $(seq 600); do
      grep -q 'Kafka Server started' "$DATA/$i/server.out" 2>/dev/null && break
      alive "$DATA/$i/pid" || { tail -20 "$DATA/$i/server.out" >&2; die "node $i died"; }
      [ "$t" != 600 ] || die "node $i not up in 60 s"
      sleep 0.1
    done
  done
}

stop() {
  local i t any=
  for i in 1 2 3; do alive "$DATA/$i/pid" && { kill "$(cat "$DATA/$i/pid")"; any=1; }; done
  [ -n "$any" ] || return 0
  for t in $(seq 300); do
    any=; for i in 1 2 3; do alive "$DATA/$i/pid" && any=1; done
    [ -n "$any" ] || break
    sleep 0.1
  done
  for i in 1 2 3; do alive "$DATA/$i/pid" && kill -9 "$(cat "$DATA/$i/pid")"; rm -f "$DATA/$i/pid"; done
  return 0
}

run_java() {
  mkdir -p "$WORK/tmp"; [ -e "$WORK/tmp/tools-log4j2.properties" ] || log4j_config WARN "$WORK/tmp/tools-log4j2.properties"
  # shellcheck disable=SC2086
  exec java ${KAFKA_TOOL_HEAP:--Xmx512M} $JVM_PERF -Dlog4j2.configurationFile="$WORK/tmp/tools-log4j2.properties" -cp "$LIB/*" "$@"
}

tool() {
  local class=$1; shift
  case $class in *.*) ;; *) class=org.apache.kafka.tools.$class ;; esac
  run_java "$class" "$@"
}

verb=${1:-}; shift || true
case $verb in
  setup) setup ;;
  format) format "$@" ;;
  up) up "$@" ;;
  wait) wait_up ;;
  start) format "${1:-1}"; up; wait_up; bootstrap ;;
  stop) stop ;;
  kill9) kill -9 "$(cat "$DATA/$1/pid")" ;;
  pids) for i in 1 2 3; do alive "$DATA/$i/pid" && echo "$i $(cat "$DATA/$i/pid")"; done; true ;;
  bootstrap) bootstrap ;;
  classpath) echo "$LIB/*" ;;
  tool) tool "$@" ;;
  java) run_java "$@" ;;
  *) sed -n '2,18p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
