package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/ops"
)

// A transaction that is open for too long is said where one looks first, with what to type.
func TestLongTransactionIsSaid(t *testing.T) {
	for age, said := range map[time.Duration]bool{ops.LongTransaction + time.Minute: true, ops.LongTransaction - time.Minute: false} {
		var out bytes.Buffer
		require.NoError(t, (&statusItem{Outbox: outboxItem{SnapshotAgeSeconds: age.Seconds()}}).print(&out))
		require.Contains(t, out.String(), "oldest transaction")
		require.Equal(t, said, bytes.Contains(out.Bytes(), []byte("the outbox becomes slower; what it is, and what ends it: oncebox doctor")), out.String())
	}
	var out bytes.Buffer
	s := &session{terminal: &terminal{out: &out}}
	require.NoError(t, s.printNotes(0, stuckNotes{transaction: ops.LongTransaction + 3*time.Minute}))
	require.Equal(t, "Nothing is stuck.\nA transaction has been open for 13m0s, so that nothing that was published since can be removed and the outbox "+
		"becomes slower. What it is, and what ends it: oncebox doctor\n", out.String())
	out.Reset()
	require.NoError(t, s.printNotes(0, stuckNotes{}))
	require.Equal(t, "Nothing is stuck.\n", out.String())
}
