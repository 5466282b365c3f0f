package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConsumersWithoutTroubleAreShownAsZero(t *testing.T) {
	states := byName([]Stats{
		{Consumer: "billing", Parked: 3, OldestParked: time.Hour},
		{Consumer: "billing@1", Parked: 1, Dead: 1, OldestParked: time.Minute},
	}, []string{"here"})
	require.Equal(t, map[string]Stats{"here": {}, "billing": {Parked: 4, Dead: 1, OldestParked: time.Hour}}, states)
	states = byName([]Stats{{Consumer: "here", Failed: 1, DeadLetters: 2, Waiting: 3}}, []string{"here"})
	require.Equal(t, map[string]Stats{"here": {Failed: 1, DeadLetters: 2, Waiting: 3}}, states)
}
