package rabbitmq

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
	"github.com/oncebox/oncebox/messaging/rabbitmq/internal/management"
)

func texts(found []diagnosis.Finding) (all string) {
	for _, f := range found {
		all += string(f.Severity) + ": " + f.Problem + ": " + f.Mend + "\n"
	}
	return all
}

func TestExamineOnARealBroker(t *testing.T) {
	t.Parallel()
	cfg := config(server(t).URL)
	cfg.ManagementURL, cfg.Queues = server(t).ManagementURL, 2
	b := connect(t, cfg)
	s := billing("examined")
	require.NoError(t, b.Declare(patient(t), nil, []messaging.Subscription{s}))
	examine := func() []diagnosis.Finding {
		found, err := b.Examine(patient(t), diagnosis.Examination{Topics: []string{"examined"}})
		require.NoError(t, err)
		return found
	}
	found := examine()
	require.Len(t, found, 2, texts(found))
	require.Contains(t, texts(found), "warning: queue oncebox:examined:billing:1: its messages are on one node only")
	require.NotContains(t, texts(found), "problem")

	policy := "/policies/" + server(t).vhost + "/harm"
	require.NoError(t, server(t).put(policy,
		`{"pattern":"^oncebox:examined:","definition":{"delivery-limit":5,"max-length":100,"message-ttl":60000,"expires":3600000},"apply-to":"queues"}`))
	require.NoError(t, b.Publish(patient(t), []event.Envelope{envelope("examined", "a", 1)}))
	for _, says := range []string{"delivery-limit", "drop-head", "policy harm", "expires", "has 1 message that waits, and no consumer is connected"} {
		await.True(t, func() bool { return strings.Contains(texts(examine()), says) }, "the finding %q", says)
	}
	require.NoError(t, server(t).remove(policy))
}

func TestExamineNeedsTheManagementPlugin(t *testing.T) {
	t.Parallel()
	cfg := config(server(t).URL)
	_, err := connect(t, cfg).Examine(patient(t), diagnosis.Examination{})
	require.ErrorContains(t, err, "ONCEBOX_RABBITMQ_MANAGEMENT_URL")
	cfg.ManagementURL = strings.Replace(server(t).ManagementURL, "guest:guest", "guest:wrong", 1)
	_, err = connect(t, cfg).Examine(patient(t), diagnosis.Examination{})
	require.ErrorContains(t, err, "401")
	require.NotContains(t, err.Error(), "wrong")
}

// sound is a queue without a fault.
func sound() management.Queue {
	return management.Queue{
		Name: "oncebox:order:billing:0", Type: "quorum", State: "running", Durable: true, Consumers: 1, Members: []string{"a", "b", "c"},
		Online: []string{"a", "b"}, Arguments: map[string]any{"x-single-active-consumer": true, "x-delivery-limit": -1.0},
	}
}

func TestFaultsOfQueues(t *testing.T) {
	t.Parallel()
	q := sound()
	require.Empty(t, faults(&q))
	for says, change := range map[string]func(*management.Queue){
		"it is a classic queue": func(q *management.Queue) { q.Type = "classic" },
		"it is a quorum queue":  func(q *management.Queue) { q.Durable = false },
		"has no majority":       func(q *management.Queue) { q.Online = q.Online[:1] },
		"it has no state":       func(q *management.Queue) { q.State = "" },
		`(state "down"`:         func(q *management.Queue) { q.State = "down" },
		"after 20 failed":       func(q *management.Queue) { q.Effective = map[string]any{"delivery-limit": 20.0} },
		"after 7 failed":        func(q *management.Queue) { q.Arguments["x-delivery-limit"] = 7.0 },
		"after 60000 ms":        func(q *management.Queue) { q.Arguments["x-message-ttl"] = 60000.0 },
		"max-length-bytes with": func(q *management.Queue) {
			q.Effective = map[string]any{"max-length-bytes": 1.0, "overflow": "drop-head"}
		},
		"are on one node only":    func(q *management.Queue) { q.Members, q.Online = q.Members[:1], q.Online[:1] },
		"no consumer for 5000 ms": func(q *management.Queue) { q.Effective = map[string]any{"expires": 5000.0} },
	} {
		q := sound()
		change(&q)
		require.Contains(t, texts(faults(&q)), says)
		require.Len(t, faults(&q), 1, says)
	}
	q.Limit = "unlimited"
	q.Effective = map[string]any{"max-length": 1.0, "overflow": "reject-publish"}
	require.Empty(t, faults(&q), "publishers wait")
}

func TestSurveyOfSubscriptions(t *testing.T) {
	t.Parallel()
	stores := func(name, value string) management.Exchange {
		return management.Exchange{Name: name, Arguments: map[string]any{alternate: value}}
	}
	second := sound()
	second.Name = "oncebox:order:billing:1"
	s := survey{
		names: names{exchange: "oncebox"}, nodes: []management.Node{{Name: "a"}, {Name: "b", MemoryAlarm: true}, {Name: "c", DiskAlarm: true}},
		queues: []management.Queue{sound(), {Name: "theirs"}, {Name: "other:a:b:0"}, second},
		exchanges: []management.Exchange{
			{Name: "oncebox"}, stores("oncebox:order:billing", "oncebox:layout:failover-2"), stores("theirs", "oncebox:source"),
			stores("oncebox:order:billing:source", "oncebox:source:K_x26_Co"), stores("oncebox:order:billing:installation", "oncebox:installation:one"),
		},
	}
	require.Len(t, s.alarms(), 2)
	require.Contains(t, texts(s.alarms()), "node b runs out of memory")
	require.Contains(t, texts(s.alarms()), "node c runs out of disk space")
	found, topics := s.subscriptions([]string{"order"})
	require.Empty(t, found)
	require.Len(t, topics, 1)
	require.Len(t, topics[0].Subscriptions, 1)
	of := topics[0].Subscriptions[0]
	require.Equal(t, "billing", of.Name)
	require.Equal(t, diagnosis.Publisher{Source: "K&Co", Installation: "one"}, of.Owner)
	require.Equal(t, 1, of.Consumers)
	require.False(t, of.Unordered)

	delete(s.queues[3].Arguments, "x-single-active-consumer")
	_, topics = s.subscriptions(nil)
	require.True(t, topics[0].Subscriptions[0].Unordered, "one queue suffices")
	s.queues = s.queues[:3]
	found, _ = s.subscriptions(nil)
	require.Contains(t, texts(found), "queue oncebox:order:billing:1 does not exist")
	found, topics = s.subscriptions([]string{"other"})
	require.Len(t, found, 1)
	require.Contains(t, texts(found), "problem: topic other: it has no queue of oncebox")
	require.Empty(t, topics)
}
