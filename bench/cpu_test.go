package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseProcess(t *testing.T) {
	p, ok := parseProcess("42 (a (b) c) S 7 42 42 0 -1 4194304 100 0 0 0 150 50 3 4 20 0 1 0 100 1000 10")
	require.True(t, ok)
	require.Equal(t, process{parent: 7, own: 2_000_000, ended: 70_000}, p)

	for _, broken := range []string{"", "42", "42 (a) S 7"} {
		_, ok := parseProcess(broken)
		require.False(t, ok, broken)
	}
}

func TestListeningSocket(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1538 0100007F:A000 01 00000000:00000000 00:00000000 00000000  0        0 1111 1
   1: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0        0 2222 1
`
	inode, ok := listeningSocket(table, 5432)
	require.True(t, ok)
	require.Equal(t, "2222", inode)

	_, ok = listeningSocket(table, 0xA000)
	require.False(t, ok, "a connection to that port is not its listener")
}

func TestUsagePerEvent(t *testing.T) {
	before, after := usage{1000, 500, math.NaN()}, usage{3000, 1500, math.NaN()}
	require.Equal(t, "20+10+?", after.since(before, 100).String())
}
