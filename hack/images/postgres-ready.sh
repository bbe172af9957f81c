#!/bin/bash
# What pg_isready tells, for probes: 0 accepting connections, 1 rejecting them (starting up), 2 no answer. The official
# program is not in the package that the server comes from.
host=127.0.0.1 port=${PGPORT:-5432} user=${PGUSER:-postgres} quiet=
while getopts 'h:p:U:d:t:q' option; do
  case $option in
    h) host=$OPTARG ;;
    p) port=$OPTARG ;;
    U) user=$OPTARG ;;
    q) quiet=1 ;;
    d | t) ;;
    *) exit 3 ;;
  esac
done
say() { [ -n "$quiet" ] || echo "$host:$port - $1"; }
if [ "${host:0:1}" = / ]; then host=127.0.0.1; fi

if ! exec 3<> "/dev/tcp/$host/$port"; then
  say "no response"
  exit 2
fi 2> /dev/null
# A start-up message of protocol 3.0: length, version, "user", the name, and an end.
length=$((4 + 4 + 5 + ${#user} + 1 + 1))
printf '\x00\x00\x00'"\\x$(printf %02x "$length")"'\x00\x03\x00\x00user\x00%s\x00\x00' "$user" >&3
IFS= read -r -t 3 -n 1 kind <&3
case ${kind:-} in
  R)
    say "accepting connections"
    # The rest of the message: hanging up on unread bytes would put a line into the server's log at every probe.
    read -r -a bytes < <(head -c 4 <&3 | od -An -tu1)
    head -c $((bytes[2] * 256 + bytes[3] - 4)) <&3 > /dev/null
    ;;
  E)
    # After an error the server hangs up. 57P03: it is starting up, shutting down or recovering.
    case $(tr '\0' ' ' <&3) in
      *57P03*) say "rejecting connections"; exit 1 ;;
      *) say "accepting connections" ;;
    esac
    ;;
  *) say "no response"; exit 2 ;;
esac
