package inbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

// A consumer's parked messages take for ever, and are more than a process works on at once. No other
// consumer waits for them.
func TestParkedMessagesOfOneConsumerDelayNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.ParkedConcurrency = 2 })
	end := make(chan struct{})
	first := box.Wrap("accounts", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		<-end
		return nil
	}), inbox.StoreFirst())
	last := box.Wrap("zones", messaging.HandlerFunc(w.effect), inbox.StoreFirst())
	const many = 10
	for n := range many {
		require.NoError(t, first.Handle(t.Context(), ordered(fmt.Sprint("slow ", n), fmt.Sprint("o", n))))
	}
	stop := runParked(t, box)
	goOn := sync.OnceFunc(func() { close(end) })
	defer goOn()
	owned := func() int { return w.count("inbox_key WHERE consumer = 'accounts' AND owner IS NOT NULL") }
	await.True(t, func() bool { return owned() == 2 }, "two keys of the first consumer are taken")
	for n := range many {
		require.NoError(t, last.Handle(t.Context(), ordered(fmt.Sprint("quick ", n), fmt.Sprint("o", n))))
	}
	await.True(t, func() bool { return len(w.effects()) == many }, "the messages of the other consumer are handled")
	require.Equal(t, 2, owned(), "and no more of its own are taken")
	goOn()
	await.True(t, func() bool { return len(w.parked()) == 0 }, "no message is parked")
	stop()
}
