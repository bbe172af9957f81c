#!/bin/bash
# Makes the database on the first start, then becomes the server. The variables are those of the official image:
# POSTGRES_PASSWORD (or _FILE), POSTGRES_USER, POSTGRES_DB, PGDATA, POSTGRES_INITDB_ARGS, POSTGRES_HOST_AUTH_METHOD.
set -euo pipefail

# Flags alone are flags of the server.
if [ "${1:0:1}" = - ]; then set -- postgres "$@"; fi
if [ "$1" != postgres ]; then exec "$@"; fi

user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}
password=${POSTGRES_PASSWORD:-}
if [ -n "${POSTGRES_PASSWORD_FILE:-}" ]; then password=$(<"$POSTGRES_PASSWORD_FILE"); fi
method=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  if [ -z "$password" ] && [ "$method" != trust ]; then
    echo "Set POSTGRES_PASSWORD to a password for the user $user." >&2
    exit 1
  fi
  # Made beside its place and moved there when whole: a start that was cut short must not look like a database.
  draft="$(dirname "$PGDATA")/.draft-$(basename "$PGDATA")"
  rm -rf "$draft"
  mkdir -p "$draft"
  chmod 700 "$draft"
  arguments=(--pgdata "$draft" --username "$user" --encoding UTF8 --auth-local trust --auth-host "$method")
  # shellcheck disable=SC2086
  if [ -n "$password" ]; then
    initdb "${arguments[@]}" --pwfile <(printf '%s\n' "$password") ${POSTGRES_INITDB_ARGS:-}
  else
    initdb "${arguments[@]}" ${POSTGRES_INITDB_ARGS:-}
  fi
  echo "host all all all $method" >> "$draft/pg_hba.conf"
  if [ "$database" != postgres ]; then
    printf 'CREATE DATABASE "%s"\n' "${database//\"/\"\"}" | postgres --single -D "$draft" postgres > /dev/null
  fi
  if [ -d "$PGDATA" ]; then rmdir "$PGDATA"; fi
  mv "$draft" "$PGDATA"
fi

# A pod's fsGroup opens the folder to the group at every mount, and the server refuses a folder that is open.
chmod 700 "$PGDATA"
export PGDATA
exec "$@" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql
