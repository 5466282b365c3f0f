package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLedgerIsDoneWhenTheLastMessageIsSettled(t *testing.T) {
	calls := 0
	l := &ledger{tally: newTally([]string{"a"}, 2), all: 3, done: func() { calls++ }}
	for version := range int64(2) {
		l.receive()
		l.handle("a", version+1)
	}
	l.settle(2)
	require.False(t, l.complete())
	require.ErrorIs(t, l.verdict(), errWrong, "the copy has not come")

	l.receive()
	l.settle(1)
	l.settle(1) // again, after a redelivery
	require.True(t, l.complete())
	require.Equal(t, 1, calls)
	require.NoError(t, l.verdict())
	require.Equal(t, 2, l.sent())
}

func TestLedgerSeesWhatWentWrong(t *testing.T) {
	for name, versions := range map[string][]int64{"lost": {1}, "doubled": {1, 2, 2}, "disordered": {2, 1}} {
		l := &ledger{tally: newTally([]string{"a"}, 2)}
		for _, version := range versions {
			l.handle("a", version)
		}
		require.ErrorContains(t, l.verdict(), name+"=1", name)
	}
}
