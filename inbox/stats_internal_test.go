package inbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A gauge shows its last value for ever.
func TestConsumersWithoutTroubleAreShownAsZero(t *testing.T) {
	i := &Inbox{handlers: map[handlerKey]*wrapped{{"here", ""}: nil}}
	states := i.next(map[string]Stats{}, []Stats{{Consumer: "billing", Parked: 3}, {Consumer: "billing@1", Parked: 1, Dead: 1}})
	require.Equal(t, map[string]Stats{"here": {}, "billing": {Parked: 4, Dead: 1}}, states)
	states = i.next(states, []Stats{{Consumer: "here", Failed: 1, DeadLetters: 2, Waiting: 3}})
	require.Equal(t, map[string]Stats{"here": {Failed: 1, DeadLetters: 2, Waiting: 3}, "billing": {}}, states)
}
