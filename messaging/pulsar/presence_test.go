package pulsar

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

// hole is an admin API that takes requests and, while it is shut, answers none of them.
type hole struct {
	*httptest.Server

	shut     atomic.Bool
	requests atomic.Int32
}

func newHole(t *testing.T, n *pulsartest.Namespace) *hole {
	t.Helper()
	h := &hole{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.requests.Add(1)
		if h.shut.Load() {
			<-r.Context().Done() // the asking side gave up
			return
		}
		http.Redirect(w, r, n.AdminURL+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	}))
	t.Cleanup(h.Close)
	return h
}

// aMinuteLater ends the time in which the admin API is left alone.
func aMinuteLater(b *Broker) {
	b.keeper.Presence.AskAgain()
}

func publishTo(t *testing.T, b *Broker, topic string) {
	t.Helper()
	require.NoError(t, b.Publish(patient(t), []event.Envelope{envelope(topic, "a", 1)}))
}

// A firewall swallows what is sent to the admin API: one question, and everything goes on without it. When it is there
// after all, the background finds it.
func TestAdminThatNeverAnswers(t *testing.T) {
	t.Parallel()
	var log logbook.Book
	n := pulsartest.Open(t)
	h := newHole(t, n)
	h.shut.Store(true)
	cfg := declared(n, "order", "s")
	cfg.AdminURL, cfg.AdminTimeout, cfg.Telemetry.Logger, cfg.AudienceInterval = h.URL, time.Second, log.Logger(), time.Nanosecond
	b := connect(t, cfg)
	for _, topic := range []string{"order", "two", "three", "order", "two"} {
		publishTo(t, b, topic)
	}
	r, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s"})
	require.NoError(t, err)
	receiveAll(t, r, 1)
	require.LessOrEqual(t, h.requests.Load(), int32(1), "the time for it may be over before it is asked")
	require.Equal(t, 1, log.Count("admin API cannot be used"))

	h.shut.Store(false)
	await.True(t, func() bool {
		aMinuteLater(b) // each time: it may have been too slow
		publishTo(t, b, "two")
		return log.Count(`(Store.Published().Replay)" topic=`+b.keeper.FullName("two")) == 1
	}, "the background finds the admin API")
}

// It may also fall silent later. The first message to a topic waits for it once.
func TestAdminThatAnswersNoMore(t *testing.T) {
	t.Parallel()
	var log logbook.Book
	n := pulsartest.Open(t)
	h := newHole(t, n)
	cfg := declared(n, "order", "s")
	cfg.AdminURL, cfg.Telemetry.Logger = h.URL, log.Logger()
	b := connect(t, cfg)
	b.keeper.Presence.Patience = topics.Patience
	h.shut.Store(true)
	before := h.requests.Load()
	// Each time it was asked in vain is in the log; the request itself may come too late to be sent.
	requireAsked := func(times int, why string) {
		t.Helper()
		require.Equal(t, times, log.Count("does not answer"), why)
		require.LessOrEqual(t, h.requests.Load()-before, int32(times), why)
	}
	for _, topic := range []string{"order", "two", "three"} {
		publishTo(t, b, topic)
	}
	requireAsked(1, "it is left alone after the first time")

	aMinuteLater(b)
	publishTo(t, b, "two")
	requireAsked(1, "what was published to waits no more")
	publishTo(t, b, "four")
	requireAsked(2, "it is asked again after a minute")

	// Who wants to make topics still relies on it: they would be made in another way without.
	h.shut.Store(false)
	require.NoError(t, b.Declare(t.Context(), []string{"five"}, nil))
	partitions, err := b.keeper.Admin.Partitions(t.Context(), "five")
	require.NoError(t, err)
	require.Equal(t, 4, partitions)
}
