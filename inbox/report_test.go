package inbox_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/operator"
)

// cuttable is a broker whose receivers can be cut off, and that can be made to say nothing.
type cuttable struct {
	*memory.Broker

	mu     sync.Mutex
	is     messaging.Connection
	silent bool

	precision count.Precision // of its answers
}

func newCuttable(t *testing.T) *cuttable {
	t.Helper()
	b := &cuttable{Broker: memory.New(nil), is: messaging.Connection{Parts: 2, Since: time.Now()}}
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func (b *cuttable) become(away int, since time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.is = messaging.Connection{Parts: 2, Away: away, Since: since, Err: err}
}

func (b *cuttable) Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error) {
	r, err := b.Broker.Subscribe(ctx, s)
	return cutReceiver{r, b}, err
}

func (b *cuttable) ReadSubscription(ctx context.Context, topic, name string) (messaging.SubscriptionState, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.silent {
		return messaging.SubscriptionState{}, errors.New("403 Forbidden")
	}
	s, err := b.Broker.ReadSubscription(ctx, topic, name)
	s.Precision = b.precision
	return s, err
}

type cutReceiver struct {
	messaging.Receiver
	broker *cuttable
}

func (r cutReceiver) Connection() messaging.Connection {
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	return r.broker.is
}

// start runs the consumers of a box, and returns what ends them.
func start(t *testing.T, box *inbox.Inbox, broker messaging.Subscriber) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- box.Run(ctx, broker) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, await.Receive(t, ended, "Run ends"))
	})
	t.Cleanup(stop)
	return stop
}

// consumer returns the state of billing as the database knows it.
func (w *world) consumer() (c state.Consumer) {
	w.t.Helper()
	list, err := w.operator().State().Consumers(w.t.Context())
	require.NoError(w.t, err)
	for _, c := range list {
		if c.Consumer == "billing" {
			return c
		}
	}
	return c
}

// states returns the states of its processes.
func (w *world) states() (list []string) {
	w.t.Helper()
	for _, topic := range w.consumer().Topics {
		for _, p := range topic.Processes {
			list = append(list, p.State)
		}
	}
	return list
}

func (w *world) awaitStates(want ...string) {
	w.t.Helper()
	await.True(w.t, func() bool { return slices.Equal(w.states(), want) },
		"the processes of billing are %v", want)
}

// trouble returns the trouble of billing, zero if there is none.
func (w *world) trouble() state.Trouble {
	w.t.Helper()
	c := w.consumer()
	found := c.Troubles()
	require.LessOrEqual(w.t, len(found), 1)
	if len(found) == 0 {
		return state.Trouble{}
	}
	return found[0]
}

// An operator sees that a consumer is cut off, since when and why; that it is back; and at once that it was stopped, and that messages wait.
func TestConnectionOfAConsumerIsWrittenDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	broker := newCuttable(t)
	box := w.hasty(nil)
	require.NoError(t, box.Consume("order", "billing", messaging.HandlerFunc(w.effect), inbox.OwnedBy("shop"),
		inbox.Retry(inbox.RetryPolicy{MaxAttempts: 20, GiveUpAfter: time.Hour, DeployWait: -1})))
	stop := start(t, box, broker)
	w.awaitStates("connected")
	limits, err := w.box.State().Limits(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]operator.Limit{"billing": {Attempts: 20, For: time.Hour}}, limits)
	await.True(t, func() bool { return w.consumer().Topics[0].Waiting.Known }, "the broker was asked")
	require.Empty(t, w.trouble())
	require.True(t, w.consumer().Runs)

	began := time.Now().Add(-time.Hour)
	broker.become(1, began, errors.New("connection refused"))
	w.awaitStates("partly")
	broker.become(2, began, errors.New("connection refused"))
	w.awaitStates("away")
	found := w.trouble()
	require.Equal(t, []any{state.TroubleAway, "order", "connection refused"}, []any{found.Kind, found.Topic, found.Error})
	require.WithinDuration(t, began, found.Since, time.Second)
	require.True(t, w.consumer().Runs, "its process does")
	require.False(t, found.Partly)
	broker.become(1, time.Now(), errors.New("connection refused"))
	w.awaitStates("partly")
	require.WithinDuration(t, began, w.trouble().Since, time.Second, "connections come back one by one, and the fault is the same")
	require.True(t, w.trouble().Partly)

	broker.become(0, time.Now(), nil)
	w.awaitStates("connected")
	require.Empty(t, w.trouble())
	is := w.consumer().Topics[0].Processes[0]
	require.Equal(t, "connection refused", is.Error, "the last error stays")
	require.False(t, is.FailedAt.IsZero())

	require.NoError(t, w.operator().Consumers().Pause(t.Context(), "billing", 0, ann))
	w.awaitStates("paused")
	require.Empty(t, w.trouble())
	require.NoError(t, w.operator().Consumers().Resume(t.Context(), "billing", ann))
	w.awaitStates("connected")

	stop()
	c := w.consumer()
	require.Equal(t, []bool{false, true}, []bool{c.Runs, c.Stopped})
	require.WithinDuration(t, time.Now(), c.SeenAt, time.Minute)
	require.Empty(t, w.states())
	require.Empty(t, w.trouble(), "nothing waits, as the broker has said a moment ago")
	w.exec("UPDATE inbox_topic SET asked_at = asked_at - interval '2 minutes'")
	require.Equal(t, state.TroubleMissing, w.trouble().Kind, "nobody knows what waits by now")
}

// A consumer that nobody runs has a backlog that another process of the service reads: one without that consumer, a relay for example.
func TestBacklogOfAConsumerThatNobodyRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	broker := newCuttable(t)
	box := w.hasty(nil)
	require.NoError(t, box.Consume("order", "billing", messaging.HandlerFunc(w.effect)))
	stop := start(t, box, broker)
	w.awaitStates("connected")
	await.True(t, func() bool { return len(column[string](t, w.db.DB, "SELECT topic FROM inbox_topic")) == 1 }, "the topic is known")
	stop()
	var many []event.Envelope
	for n := range state.Many + 1 {
		many = append(many, ordered(strconv.Itoa(n), "o1").Envelope)
	}
	broker.precision = count.AtLeast
	published := time.Now()
	require.NoError(t, broker.Publish(t.Context(), many))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watching := make(chan struct{})
	go func() { defer close(watching); w.hasty(nil).State().WatchBrokers(ctx, broker) }()
	await.True(t, func() bool { return w.trouble().Waiting.Messages > state.Many }, "the backlog is known")
	require.Equal(t, state.TroubleMissing, w.trouble().Kind)
	require.True(t, w.trouble().Waiting.Known)
	require.False(t, w.trouble().Waiting.Many.IsZero(), "there are many")
	require.WithinDuration(t, published, w.trouble().Waiting.Oldest, time.Minute)
	require.Equal(t, count.AtLeast, w.trouble().Waiting.Precision)
	cancel()
	<-watching

	broker.silent = true // nobody may look
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	watching = make(chan struct{})
	go func() { defer close(watching); w.hasty(nil).State().WatchBrokers(ctx, broker) }()
	await.True(t, func() bool { return w.trouble().Error != "" }, "the request has failed")
	require.Contains(t, w.trouble().Error, "403 Forbidden")
	cancel()
	<-watching
	w.exec("UPDATE inbox_topic SET asked_at = now() + interval '10 minutes'") // as fresh as one of now, also on a machine that stands still
	require.True(t, w.trouble().Waiting.Known, "the answer before is as good as it was")
	w.exec("UPDATE inbox_topic SET asked_at = now() - interval '61 seconds'")
	require.False(t, w.trouble().Waiting.Known)
	require.NoError(t, w.operator().Consumers().Forget(t.Context(), "billing", ann))
	require.Empty(t, w.consumer())
}

// A consumer that is connected and whose handler hangs does not get on. Nor does one whose subscription is gone, and one of whose processes none has a
// connection; one that is left is enough.
func TestTroublesOfAConsumer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	process := func(n int, state, since, rest string) string {
		return "INSERT INTO inbox_process VALUES ('billing', 'order', '00000000-0000-0000-0000-00000000000" + string(rune('0'+n)) + "', 'p', '" + state +
			"', now() - interval '" + since + "', " + rest + ", now(), now() + interval '1 minute')"
	}
	fresh := func(backlog, stands string) string {
		return "INSERT INTO inbox_topic VALUES ('order', 'billing', true, false, NULL, " + backlog + ", 1, 1, 0, false, now(), " + stands + ")"
	}
	many := func(since string) string {
		return "UPDATE inbox_topic SET many_since = now() - interval '" + since + "'"
	}
	paused := func(since, ends string) string {
		return "INSERT INTO inbox_pause VALUES ('billing', now() - interval '" + since + "', 'ann', 'smtp is down', " + ends + ")"
	}
	const idle = "0, NULL, '', NULL"
	for name, test := range map[string]struct {
		rows []string
		want state.TroubleKind
	}{
		"all is well":          {[]string{process(1, "CONNECTED", "1 hour", idle), fresh("0", "NULL")}, ""},
		"a moment":             {[]string{process(1, "AWAY", "5 seconds", idle), fresh("0", "NULL")}, ""},
		"cut off":              {[]string{process(1, "AWAY", "5 minutes", idle), fresh("0", "NULL")}, state.TroubleAway},
		"one of two":           {[]string{process(1, "AWAY", "5 minutes", idle), process(2, "CONNECTED", "1 hour", idle)}, ""},
		"both":                 {[]string{process(1, "AWAY", "5 minutes", idle), process(2, "PARTLY", "1 hour", idle)}, state.TroubleAway},
		"a handler hangs":      {[]string{process(1, "CONNECTED", "1 hour", "3, now() - interval '5 minutes', '', NULL")}, state.TroubleLate},
		"a handler works":      {[]string{process(1, "CONNECTED", "1 hour", "3, now() - interval '5 seconds', '', NULL")}, ""},
		"nothing is delivered": {[]string{process(1, "CONNECTED", "1 hour", idle), fresh("7", "now() - interval '5 minutes'")}, state.TroubleLate},
		"it has just begun":    {[]string{process(1, "CONNECTED", "3 seconds", idle), fresh("7", "now() - interval '2 hours'")}, ""},
		"killed again and again": {[]string{
			process(1, "CONNECTED", "45 seconds", idle), process(2, "CONNECTED", "3 seconds", idle), fresh("7", "now() - interval '5 minutes'"),
		}, state.TroubleLate},
		"behind":  {[]string{process(1, "CONNECTED", "1 hour", idle), fresh("1001", "NULL"), many("31 seconds")}, state.TroubleBehind},
		"a burst": {[]string{process(1, "CONNECTED", "1 hour", idle), fresh("20000", "NULL"), many("20 seconds")}, ""},
		"behind, hangs": {[]string{
			process(1, "CONNECTED", "1 hour", idle), fresh("2000", "now() - interval '5 minutes'"), many("1 hour"),
		}, state.TroubleLate},
		"behind, paused":  {[]string{process(1, "PAUSED", "1 hour", idle), fresh("2000", "NULL"), many("1 hour")}, ""},
		"behind, cut off": {[]string{process(1, "AWAY", "5 minutes", idle), fresh("2000", "NULL"), many("1 hour")}, state.TroubleAway},

		"paused":             {[]string{process(1, "PAUSED", "1 hour", idle), fresh("7", "now() - interval '5 minutes'")}, ""},
		"forgotten":          {[]string{process(1, "PAUSED", "25 hours", idle), paused("25 hours", "NULL")}, state.TroublePaused},
		"with an end":        {[]string{process(1, "PAUSED", "25 hours", idle), paused("25 hours", "now() + interval '1 hour'")}, ""},
		"paused and cut off": {[]string{process(1, "AWAY", "5 minutes", idle), paused("1 hour", "NULL")}, ""},
		"the topic is gone": {[]string{
			process(1, "CONNECTED", "1 hour", idle), fresh("0", "NULL"), "UPDATE inbox_topic SET missing = true",
		}, state.TroubleAway},
		"killed": {[]string{
			process(1, "CONNECTED", "1 hour", idle), fresh("7", "NULL"), "UPDATE inbox_process SET seen_until = now() - interval '1 second'",
		}, state.TroubleMissing},
		"without a broker": {[]string{process(1, "STORED", "1 hour", idle)}, ""},
	} {
		w.exec("DELETE FROM inbox_process")
		w.exec("DELETE FROM inbox_topic")
		w.exec("DELETE FROM inbox_pause")
		for _, row := range test.rows {
			w.exec(row)
		}
		require.Equal(t, test.want, w.trouble().Kind, name)
		require.Equal(t, name != "killed", w.consumer().Runs, name)
	}
}
