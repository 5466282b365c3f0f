package pulsar

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// Acknowledgements are sent and forgotten. After the commit all that the client says is lost, until the connection is: the
// messages come again, and have their effects once.
func TestAcknowledgementsAreLost(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	e := newEffects(t, declared(n, "order", "s"), n)
	const keys, perKey = 10, 20
	p := newProxy(t, n.URL)
	cfg := config(n)
	cfg.URL = p.url()
	e.consume(connect(t, cfg), messaging.Subscription{Topic: "order", Name: "s", Queue: keys * perKey})
	require.NoError(t, e.broker.Publish(patient(t), series("order", keys, perKey)[:keys]))
	e.eventually("the consumer is there", func() bool { return e.count() == keys })
	e.settled("order", "s")

	p.deaf.Store(true)
	require.NoError(t, e.broker.Publish(patient(t), series("order", keys, perKey)[keys:]))
	e.eventually("all is committed", func() bool { return e.count() >= keys*perKey })
	lost := p.lost.Load()
	e.eventually("the acknowledgements are lost", func() bool { return p.lost.Load() > lost })
	before := e.deliveries.Load()
	p.cut()
	p.deaf.Store(false)
	e.settled("order", "s")
	e.requireOnceInOrder(keys, perKey)
	// Not all of them: what the client has collected in the last 100 ms it may say once it is connected again.
	require.Greater(t, e.deliveries.Load(), before, "they came again")
}

// A batch with some messages acknowledged comes again as a whole. All of it can be settled then.
func TestPartlyAcknowledgedBatchComesAgain(t *testing.T) {
	t.Parallel()
	s := messaging.Subscription{Topic: "order", Name: "s"}
	for name, again := range map[string]func(*testing.T, *effects, messaging.Receiver) messaging.Receiver{
		"to the same consumer": func(t *testing.T, e *effects, r messaging.Receiver) messaging.Receiver {
			require.NoError(t, e.namespace.Admin(t.Context(), http.MethodPut, "/persistent/"+e.namespace.Name+"/order/unload", ""))
			return r
		},
		"to another consumer": func(t *testing.T, e *effects, r messaging.Receiver) messaging.Receiver {
			require.NoError(t, r.Close())
			r, err := e.broker.Subscribe(t.Context(), s)
			require.NoError(t, err)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := pulsartest.Open(t)
			cfg := declared(n, "order", "s")
			cfg.Partitions = 1
			e := newEffects(t, cfg, n)
			r, err := e.broker.Subscribe(t.Context(), s)
			require.NoError(t, err)
			require.NoError(t, e.broker.Publish(patient(t), series("order", 5, 4)))
			size := 0
			for i := range 20 {
				m, err := r.Receive(patient(t))
				require.NoError(t, err)
				size = max(size, int(m.Receipt().(*receipt).message.ID().BatchSize()))
				require.NoError(t, e.handler.Handle(t.Context(), m))
				if i%2 == 0 {
					require.NoError(t, r.Ack(t.Context(), m))
				}
			}
			require.Greater(t, size, 1)
			r = again(t, e, r)
			ctx := patient(t)
			done := make(chan struct{})
			go func() { // some come twice, and how many is the broker's affair
				defer close(done)
				for {
					m, err := r.Receive(ctx)
					if err != nil || e.handler.Handle(ctx, m) != nil || r.Ack(ctx, m) != nil {
						return
					}
				}
			}()
			e.settled("order", "s")
			require.NoError(t, r.Close())
			<-done
			require.Greater(t, e.deliveries.Load(), int64(20), "they came again")
			e.requireOnceInOrder(5, 4)
		})
	}
}
