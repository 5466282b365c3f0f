//go:build !race

// Without the race detector for the reason given in trouble_test.go.

package pulsar

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// A consumer that the broker has ended for good is mended without a restart of the process.
func TestLoopOutlivesItsTopic(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	forbidAutoCreation(t, n)
	s := messaging.Subscription{Topic: "order", Name: "s"}
	e := newEffects(t, declared(n, "order", "s"), n)
	consumer := connect(t, declared(n, "order", "s"))
	l, _ := e.consume(consumer, s)
	publish := func(from, to int) {
		e.eventually("they are published", func() bool { return e.broker.Publish(t.Context(), series("order", 5, to)[5*from:]) == nil })
		e.eventually("they have their effect", func() bool { return e.count() >= 5*to })
	}
	publish(0, 2)
	require.NoError(t, l.Health(time.Minute))

	topic := "/persistent/" + n.Name + "/order"
	for round, end := range []func(){
		func() {},
		func() { require.NoError(t, n.Admin(t.Context(), http.MethodPost, topic+"/terminate/partitions", "")) },
	} {
		end()
		require.NoError(t, n.Admin(t.Context(), http.MethodDelete, topic+"/partitions?force=true", ""))
		e.eventually("it is noticed", func() bool { return l.Health(time.Minute) != nil })
		require.NoError(t, n.Admin(t.Context(), http.MethodPut, topic+"/partitions", "4"))
		e.eventually("it is subscribed again", func() bool { return l.Health(time.Minute) == nil })
		publish(2*round+2, 2*round+4)
	}
	e.settled("order", "s")
	e.requireOnceInOrder(5, 6)
}
