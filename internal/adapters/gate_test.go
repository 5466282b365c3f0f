package adapters_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/adapters"
)

func TestGate(t *testing.T) {
	t.Parallel()
	g := adapters.NewGate()
	g.Pause()
	g.Wake()
	require.True(t, g.IsPaused())
	require.Len(t, g.Look(), 1)
	g.Resume()
	require.False(t, g.IsPaused())
	require.False(t, g.IsClosed())
	require.True(t, g.Shut())
	require.False(t, g.Shut())
	require.True(t, g.IsClosed())
	<-g.Closed()
}

func TestByTopic(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	publish := func(topic string, indexes []int) map[int]error {
		if topic == "b" {
			return adapters.All(indexes, refused)
		}
		return nil
	}
	msgs := []event.Envelope{{Topic: "a"}, {Topic: "b"}, {Topic: "a"}, {Topic: "b"}}
	require.Equal(t, map[int]error{1: refused, 3: refused}, adapters.ByTopic(msgs, publish))
	require.Equal(t, map[int]error{0: refused}, adapters.ByTopic(msgs[1:2], publish))
}
