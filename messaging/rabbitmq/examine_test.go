//go:build nightly

package rabbitmq

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
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

	_, err := server(t).Manage(t.Context(), http.MethodPut, "/policies/%2F/harm",
		`{"pattern":"^oncebox:examined:","definition":{"delivery-limit":5,"max-length":100,"message-ttl":60000,"expires":3600000},"apply-to":"queues"}`)
	require.NoError(t, err)
	require.NoError(t, b.Publish(patient(t), []event.Envelope{envelope("examined", "a", 1)}))
	for _, says := range []string{"delivery-limit", "drop-head", "policy harm", "expires", "has 1 message that waits, and no consumer is connected"} {
		await.True(t, func() bool { return strings.Contains(texts(examine()), says) }, "the finding %q", says)
	}
	_, err = server(t).Manage(t.Context(), http.MethodDelete, "/policies/%2F/harm", "")
	require.NoError(t, err)
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

func TestFaultsOfQueues(t *testing.T) {
	t.Parallel()
	sound := func() queueInfo {
		return queueInfo{
			Name: "oncebox:order:billing:0", Type: "quorum", State: "running", Durable: true, Consumers: 1, Members: []string{"a", "b", "c"},
			Online: []string{"a", "b"}, Arguments: map[string]any{"x-single-active-consumer": true, "x-delivery-limit": -1.0},
		}
	}
	q := sound()
	require.Empty(t, q.faults())
	for says, change := range map[string]func(*queueInfo){
		"it is a classic queue":   func(q *queueInfo) { q.Type = "classic" },
		"it is a quorum queue":    func(q *queueInfo) { q.Durable = false },
		"has no majority":         func(q *queueInfo) { q.Online = q.Online[:1] },
		`(state "down"`:           func(q *queueInfo) { q.State = "down" },
		"after 20 failed":         func(q *queueInfo) { q.Effective = map[string]any{"delivery-limit": 20.0} },
		"after 7 failed":          func(q *queueInfo) { q.Arguments["x-delivery-limit"] = 7.0 },
		"after 60000 ms":          func(q *queueInfo) { q.Arguments["x-message-ttl"] = 60000.0 },
		"max-length-bytes with":   func(q *queueInfo) { q.Effective = map[string]any{"max-length-bytes": 1.0, "overflow": "drop-head"} },
		"are on one node only":    func(q *queueInfo) { q.Members, q.Online = q.Members[:1], q.Online[:1] },
		"no consumer for 5000 ms": func(q *queueInfo) { q.Effective = map[string]any{"expires": 5000.0} },
	} {
		q := sound()
		change(&q)
		require.Contains(t, texts(q.faults()), says)
		require.Len(t, q.faults(), 1, says)
	}
	q.Effective = map[string]any{"max-length": 1.0, "overflow": "reject-publish"}
	require.Empty(t, q.faults(), "publishers wait")

	found, topics := examineQueues(names{exchange: "oncebox"}, []queueInfo{sound(), {Name: "theirs"}, {Name: "other:a:b:0"}}, []string{"order"})
	require.Empty(t, found)
	require.Len(t, topics, 1)
	require.Equal(t, "billing", topics[0].Subscriptions[0].Name)
	require.False(t, topics[0].Subscriptions[0].Unordered)
}
