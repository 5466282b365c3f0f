package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSoleOwners(t *testing.T) {
	claimed := handover{owner: "a", epoch: 1}
	for name, tt := range map[string]struct {
		next  handover
		wrong string
	}{
		"released":               {handover{was: "a", wasEpoch: 1, epoch: 1}, ""},
		"taken over":             {handover{was: "a", wasEpoch: 1, expired: true, owner: "b", epoch: 2}, ""},
		"taken during the lease": {handover{was: "a", wasEpoch: 1, owner: "b", epoch: 2}, "the lease had not ended"},
		"taken in one epoch":     {handover{was: "a", wasEpoch: 1, expired: true, owner: "b", epoch: 1}, "the epoch did not grow"},
		"released twice":         {handover{wasEpoch: 1, epoch: 1}, `it was "a"'s in epoch 1`},
		"released by an epoch":   {handover{was: "a", wasEpoch: 1, epoch: 2}, "the epoch changed"},
		"another lane":           {handover{lane: 1, owner: "b", epoch: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := soleOwners([]handover{claimed, tt.next})
			if tt.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, errWrong)
			require.ErrorContains(t, err, tt.wrong)
		})
	}
}

func TestSolePublishers(t *testing.T) {
	begin := time.Now()
	by := func(who string, lanes uint64, from, to int) publication {
		return publication{By: who, Lanes: lanes, Begin: begin.Add(time.Duration(from)), End: begin.Add(time.Duration(to))}
	}
	require.NoError(t, solePublishers([]publication{by("a", 1, 0, 9), by("b", 2, 0, 9), by("b", 1, 9, 12), by("a", 2, 10, 11)}))
	require.NoError(t, solePublishers([]publication{by("a", 1, 0, 9), by("a", 1, 5, 9)}))
	err := solePublishers([]publication{by("b", 3, 5, 6), by("a", 1, 0, 9)})
	require.ErrorIs(t, err, errWrong)
	require.ErrorContains(t, err, "a and b published from lane 0 at a time")
	require.Error(t, solePublishers([]publication{by("a", 1, 0, 20), by("a", 1, 1, 2), by("b", 1, 5, 6)}), "the longer one is still under way")
}
