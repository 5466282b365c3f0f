package nats

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// Streams with settings that break the guarantees are refused, at the start and when they are published to, with the setting and the command that
// mends it. Nothing is stored in them.
func TestOtherStreamsAreRefused(t *testing.T) {
	t.Parallel()
	server := serve(t)
	maker := connect(t, config(server.URL()))
	js := maker.session.JS
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "elsewhere", Subjects: []string{"elsewhere"}})
	require.NoError(t, err)
	for n, is := range []struct {
		wanted string
		jetstream.StreamConfig
	}{
		{"retention is Interest", jetstream.StreamConfig{Retention: jetstream.InterestPolicy}},
		{"retention is WorkQueue", jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}},
		{"no_ack is true", jetstream.StreamConfig{NoAck: true}},
		{"max_msgs_per_subject is 1", jetstream.StreamConfig{MaxMsgsPerSubject: 1}},
		{"discard is DiscardOld", jetstream.StreamConfig{MaxBytes: 1 << 20}},
		{"discard is DiscardOld", jetstream.StreamConfig{MaxMsgs: 10}},
		{"sealed or mirror is", jetstream.StreamConfig{Mirror: &jetstream.StreamSource{Name: "elsewhere"}}},
		{"sealed or mirror is", jetstream.StreamConfig{Sealed: true}},
		{"subject_transform is", jetstream.StreamConfig{SubjectTransform: &jetstream.SubjectTransformConfig{Source: ">", Destination: "x.>"}}},
		{"its subjects are", jetstream.StreamConfig{Subjects: []string{"nowhere.>"}}},
		{"is 5, and it does not take the subject", jetstream.StreamConfig{Metadata: map[string]string{"oncebox-partitions": "5"}}},
		{`oncebox-partitions is "many"`, jetstream.StreamConfig{Metadata: map[string]string{"oncebox-partitions": "many"}}},
		{`oncebox-partitions is "0"`, jetstream.StreamConfig{Metadata: map[string]string{"oncebox-partitions": "0"}}},
		{`oncebox-partitions is "1025"`, jetstream.StreamConfig{Metadata: map[string]string{"oncebox-partitions": "1025"}}},
	} {
		topic := fmt.Sprint("t", n)
		c := is.StreamConfig
		c.Name, c.Sealed = maker.Stream(topic), false
		if c.Subjects == nil && c.Mirror == nil {
			c.Subjects = maker.Subjects(topic, 4)
		}
		_, err := js.CreateStream(t.Context(), c)
		require.NoError(t, err, is.wanted)
		if is.Sealed { // no stream is made so
			c.Sealed = true
			_, err = js.UpdateStream(t.Context(), c)
			require.NoError(t, err)
		}
		for _, declare := range []string{Make, Check} {
			cfg := config(server.URL())
			cfg.Topics, cfg.Required, cfg.Declare = []string{topic}, false, declare
			_, err = Connect(t.Context(), cfg)
			require.ErrorContains(t, err, is.wanted)
			require.ErrorContains(t, err, c.Name)
			cfg.Topics = nil
			err = connect(t, cfg).Publish(t.Context(), []event.Envelope{{ID: "1", Topic: topic}})
			found, ok := errors.AsType[*messaging.TopicError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, topic, found.Topic)
		}
		st, err := maker.session.Stream(t.Context(), c.Name)
		require.NoError(t, err)
		require.Zero(t, st.CachedInfo().State.LastSeq, is.wanted)
	}
}

// Settings that break nothing are used as they are.
func TestOtherSoundStreamsAreUsed(t *testing.T) {
	t.Parallel()
	server := serve(t)
	b := connect(t, config(server.URL()))
	for n, c := range []jetstream.StreamConfig{
		{MaxBytes: 1 << 20, Discard: jetstream.DiscardNew},
		{MaxMsgs: 10, Discard: jetstream.DiscardNew},
		{MaxAge: time.Hour},
		{Storage: jetstream.MemoryStorage},
		{DenyDelete: true, DenyPurge: true},
		{Duplicates: time.Second},
		{Subjects: []string{"oncebox.t6.*"}, Metadata: map[string]string{"oncebox-partitions": "4"}},
		{Subjects: []string{"other.*", "oncebox.t7.0"}, SubjectTransform: &jetstream.SubjectTransformConfig{Source: "other.*", Destination: "oncebox.t7.0"}},
	} {
		topic := fmt.Sprint("t", n)
		c.Name = b.Stream(topic)
		if c.Subjects == nil {
			c.Subjects = b.Subjects(topic, 2)
		}
		_, err := b.session.JS.CreateStream(t.Context(), c)
		require.NoError(t, err)
		for _, declare := range []string{Make, Check} {
			cfg := config(server.URL())
			cfg.Topics, cfg.Declare = []string{topic}, declare
			require.NoError(t, connect(t, cfg).Publish(t.Context(), []event.Envelope{{ID: declare, Topic: topic}}))
		}
	}
}

// Consumers with settings that break the guarantees are refused, with the setting and the command that mends it.
func TestOtherConsumersAreRefused(t *testing.T) {
	t.Parallel()
	server := serve(t)
	b := connect(t, config(server.URL()))
	require.NoError(t, b.Declare(t.Context(), []string{"order"}, nil))
	for n, is := range []struct {
		wanted string
		messaging.SubscriptionType
		change func(*jetstream.ConsumerConfig)
	}{
		{"ack policy is", messaging.Shared, func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckNonePolicy }},
		{"ack policy is", messaging.Shared, func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }},
		{"max_deliver is", messaging.Shared, func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 }},
		{"headers_only is", messaging.Shared, func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true }},
		{"deliver_subject is", messaging.Shared, func(c *jetstream.ConsumerConfig) { c.DeliverSubject = "x" }},
		{"filter is", messaging.Shared, func(c *jetstream.ConsumerConfig) { c.FilterSubject = "oncebox.order.1" }},
		{"max_batch, max_expires or max_bytes is", messaging.Shared, func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 1 }},
		{"max_batch, max_expires or max_bytes is", messaging.Shared, func(c *jetstream.ConsumerConfig) { c.MaxRequestExpires = time.Second }},
		{"max_batch, max_expires or max_bytes is", messaging.Shared, func(c *jetstream.ConsumerConfig) { c.MaxRequestMaxBytes = 1 }},
		{"ack_wait is", messaging.Shared, func(c *jetstream.ConsumerConfig) { c.AckWait = 100 * time.Millisecond }},
		{"priority groups is", messaging.Shared, func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPinned, []string{"oncebox"}
		}},
		{"priority groups is", messaging.Failover, func(c *jetstream.ConsumerConfig) { c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = 0, nil, 0 }},
		{"priority groups is", messaging.Failover, func(c *jetstream.ConsumerConfig) { c.PriorityGroups = []string{"other"} }},
		{"priority groups is", messaging.Failover, func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PinnedTTL = jetstream.PriorityPolicyOverflow, 0
		}},
		{"priority_timeout is", messaging.Failover, func(c *jetstream.ConsumerConfig) { c.PinnedTTL = 100 * time.Millisecond }},
		{"filter is", messaging.Failover, func(c *jetstream.ConsumerConfig) { c.FilterSubject = "oncebox.order.1" }},
		{"filter is", messaging.Failover, func(c *jetstream.ConsumerConfig) {
			c.FilterSubject, c.FilterSubjects = "", []string{"oncebox.order.0", "oncebox.order.1"}
		}},
	} {
		s := messaging.Subscription{Topic: "order", Name: fmt.Sprint("s", n), Type: is.SubscriptionType}
		c := jetstream.ConsumerConfig{Durable: b.Shared(s.Name), AckPolicy: jetstream.AckExplicitPolicy}
		if s.Type == messaging.Failover {
			c.Durable, c.FilterSubject = b.Consumer(s.Name, 0), "oncebox.order.0"
			c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"oncebox"}, time.Second
		}
		is.change(&c)
		var err error
		if c.DeliverSubject == "" {
			_, err = b.session.JS.CreateConsumer(t.Context(), "oncebox-order", c)
		} else {
			_, err = b.session.JS.CreatePushConsumer(t.Context(), "oncebox-order", c)
		}
		require.NoError(t, err, "%d", n)
		for _, declare := range []string{Make, Check} {
			cfg := config(server.URL())
			cfg.Declare = declare
			_, err = connect(t, cfg).Subscribe(t.Context(), s)
			require.ErrorContains(t, err, is.wanted)
			require.ErrorContains(t, err, "nats consumer rm oncebox-order "+c.Durable)
			require.True(t, messaging.IsPermanent(err), "%v", err)
		}
	}
}

// What the server will not make, however often it is asked, is an error at the start.
func TestStreamsThatTheServerRefuses(t *testing.T) {
	t.Parallel()
	server := serve(t)
	_, err := connect(t, config(server.URL())).session.JS.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "theirs", Subjects: []string{"oncebox.taken.>"}})
	require.NoError(t, err)
	for wanted, change := range map[string]func(*Config){
		"replicas > 1 not supported in non-clustered mode": func(c *Config) { c.Topics, c.Replicas = []string{"order"}, 3 },
		"set Config.Prefix (ONCEBOX_NATS_PREFIX)":          func(c *Config) { c.Topics = []string{"taken"} },
	} {
		cfg := config(server.URL())
		cfg.Required = false
		change(cfg)
		_, err := Connect(t.Context(), cfg)
		require.ErrorContains(t, err, wanted)
	}
}

// A stream that was made by hand is used with its own number of partitions: that of its metadata, or of its subjects.
func TestStreamThatWasMadeByHand(t *testing.T) {
	t.Parallel()
	server := serve(t)
	b := connect(t, config(server.URL()))
	for name, c := range map[string]jetstream.StreamConfig{
		"subjects": {Subjects: b.Subjects("order", 3)},
		"metadata": {Subjects: []string{"oncebox.order.*"}, Metadata: map[string]string{"oncebox-partitions": "3"}},
	} {
		c.Name = "oncebox-order"
		_, err := b.session.JS.CreateStream(t.Context(), c)
		require.NoError(t, err)
		var msgs []event.Envelope
		for n := range 40 {
			msgs = append(msgs, event.Envelope{ID: fmt.Sprint(n), Topic: "order", RoutingKey: fmt.Sprint("key-", n), Sequence: int64(n + 1)})
		}
		require.NoError(t, b.Publish(t.Context(), msgs))
		r := subscribe(t, b, messaging.Subscription{Name: name})
		require.ElementsMatch(t, numbers(1, 40), receive(t, r, 40, true))
		require.NoError(t, r.Close())
		_, err = b.session.Consumer(t.Context(), "oncebox-order", b.Consumer(name, 2))
		require.NoError(t, err)
		_, err = b.session.Consumer(t.Context(), "oncebox-order", b.Consumer(name, 3))
		require.ErrorIs(t, err, jetstream.ErrConsumerNotFound)
		require.NoError(t, b.session.JS.DeleteStream(t.Context(), "oncebox-order"))
		b.keeper.Forget("order")
	}
}

// With Declare "check" nothing is made, and what is missing is an error that lasts.
func TestOnlyChecks(t *testing.T) {
	t.Parallel()
	server := serve(t)
	cfg := config(server.URL())
	cfg.Declare = Check
	b := connect(t, cfg)
	err := b.Declare(t.Context(), []string{"order"}, nil)
	require.ErrorContains(t, err, "nats stream add oncebox-order")
	require.NotErrorIs(t, err, messaging.ErrBrokerDown)
	failed := failures(t, b, events(1, 1))
	_, ok := errors.AsType[*messaging.TopicError](failed[0])
	require.True(t, ok, "%v", failed[0])

	require.NoError(t, connect(t, config(server.URL())).Declare(t.Context(), []string{"order"}, nil))
	require.NoError(t, b.Publish(t.Context(), events(1, 1)))
	_, err = b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "billing"})
	require.ErrorContains(t, err, "ONCEBOX_NATS_DECLARE=make")
	require.NoError(t, connect(t, config(server.URL())).Declare(t.Context(), nil, []messaging.Subscription{{Topic: "order", Name: "billing"}}))
	require.Equal(t, numbers(1, 1), receive(t, subscribe(t, b, messaging.Subscription{Name: "billing", Source: "shop"}), 1, true))
	c, err := b.session.Consumer(t.Context(), "oncebox-order", "billing@0")
	require.NoError(t, err)
	require.NotContains(t, c.CachedInfo().Config.Metadata, "oncebox-source", "it writes nothing at the server")
}

// A subscription keeps its type: with another one, it would begin again.
func TestTypeOfASubscriptionStays(t *testing.T) {
	t.Parallel()
	b := connect(t, config(serve(t).URL()))
	for _, types := range [][2]messaging.SubscriptionType{{messaging.Failover, messaging.Shared}, {messaging.Shared, messaging.Failover}} {
		s := messaging.Subscription{Topic: "order", Name: types[0].String(), Type: types[0]}
		require.NoError(t, b.Declare(t.Context(), nil, []messaging.Subscription{s}))
		s.Type = types[1]
		_, err := b.Subscribe(t.Context(), s)
		require.ErrorContains(t, err, "is of the type "+types[0].String())
		require.True(t, messaging.IsPermanent(err))
	}
}
