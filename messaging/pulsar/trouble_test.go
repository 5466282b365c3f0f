//go:build !race

// When the broker takes a topic away, the client closes its channels in one goroutine while others send into them. That
// ends in a panic that the product catches (flight.handOver, flight.flush, topic.retire), or in nothing at all; the race
// detector reports both. So these tests are built without it only: internal/suite/step.go
// names them.

package pulsar_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// spoil is a way in which a topic takes nothing any more.
type spoil struct {
	name  string
	class string // what is reported of its messages
	do    func(t *testing.T, n *pulsartest.Namespace)
	mend  func(t *testing.T, n *pulsartest.Namespace)
	gone  bool // what it held is lost with it
}

func admin(t *testing.T, n *pulsartest.Namespace, method, path, body string) {
	t.Helper()
	require.NoError(t, n.Admin(t.Context(), method, path, body))
}

func topicPath(n *pulsartest.Namespace, name string) string {
	return "/persistent/" + n.Name + "/" + name
}

func remakeTopic(t *testing.T, n *pulsartest.Namespace) {
	t.Helper()
	admin(t, n, http.MethodPut, topicPath(n, "bad")+"/partitions", strconv.Itoa(rigPartitions))
}

// exceedQuota has the broker refuse producers, because a subscription has not received what the topic holds. The broker
// looks at the producers that it has only now and then, so they are disconnected.
func exceedQuota(policy string) func(*testing.T, *pulsartest.Namespace) {
	return func(t *testing.T, n *pulsartest.Namespace) {
		t.Helper()
		admin(t, n, http.MethodPost, "/namespaces/"+n.Name+"/backlogQuota?backlogQuotaType=destination_storage",
			fmt.Sprintf(`{"limitSize":1,"policy":%q}`, policy))
		unloadTopic(t, n)
	}
}

func unloadTopic(t *testing.T, n *pulsartest.Namespace) {
	t.Helper()
	admin(t, n, http.MethodPut, topicPath(n, "bad")+"/unload", "")
}

func drainSubscription(t *testing.T, n *pulsartest.Namespace) {
	t.Helper()
	for p := range rigPartitions {
		admin(t, n, http.MethodPost, fmt.Sprintf("%s-partition-%d/subscription/s/skip_all", topicPath(n, "bad"), p), "")
	}
	admin(t, n, http.MethodDelete, "/namespaces/"+n.Name+"/backlogQuota?backlogQuotaType=destination_storage", "")
}

func spoils() []spoil {
	return []spoil{
		{name: "terminated", class: "topic", do: func(t *testing.T, n *pulsartest.Namespace) {
			t.Helper()
			admin(t, n, http.MethodPost, topicPath(n, "bad")+"/terminate/partitions", "")
			// Pulsar 4.0.8 forgets the messages that it is writing at this moment, and keeps the topic fenced until they are
			// done. Consumers and readers are refused until an operator unloads the topic (apache/pulsar#26678).
			unloadTopic(t, n)
		}, mend: func(t *testing.T, n *pulsartest.Namespace) {
			t.Helper()
			admin(t, n, http.MethodDelete, topicPath(n, "bad")+"/partitions?force=true", "")
			remakeTopic(t, n)
		}},
		{name: "deleted", class: "topic", gone: true, do: func(t *testing.T, n *pulsartest.Namespace) {
			t.Helper()
			admin(t, n, http.MethodDelete, topicPath(n, "bad")+"/partitions?force=true", "")
		}, mend: remakeTopic},
		{name: "over its quota", class: "topic", do: exceedQuota("producer_exception"), mend: drainSubscription},
		{name: "over its quota, hanging", class: "topic", do: exceedQuota("producer_request_hold"), mend: drainSubscription},
	}
}

// A topic takes nothing any more, under load. Others go on, nothing counts as sent that is not, and when it is mended
// everything arrives in order.
func TestTopicInTroubleUnderLoad(t *testing.T) {
	t.Parallel()
	for _, s := range spoils() {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			n := pulsartest.Open(t)
			n.Retain(t)
			admin(t, n, http.MethodPost, "/namespaces/"+n.Name+"/autoTopicCreation", `{"allowAutoTopicCreation":false}`)
			tenant, namespace, _ := strings.Cut(n.Name, "/")
			r := newRig(t, &pulsar.Config{
				URL: n.URL, AdminURL: n.AdminURL, Tenant: tenant, Namespace: namespace, Topics: []string{"good", "bad"},
				Subscriptions: []messaging.Subscription{{Topic: "bad", Name: "s"}},
			})
			r.goesOn("bad")
			r.goesOn("good")

			s.do(t, n)
			r.spy.begin()
			r.eventually("the trouble is noticed", func() bool { return r.spy.failures("bad", s.class) > 0 })
			for range 3 {
				r.goesOn("good")
			}
			require.Zero(t, r.spy.confirmedNow("bad"), "what was handed over since then")
			r.requireReceipts()
			t.Logf("in trouble: %s", r.spy.summary())
			r.spy.begin()
			r.eventually("each call ends while the trouble lasts", func() bool { return r.spy.earlierOnes() == 0 })

			var before []message
			if !s.gone {
				sent := r.sentOf("bad")
				before = r.read("bad")
				r.requireFound("bad", sent, before)
			}
			first := r.unsent("bad")
			s.mend(t, n)
			r.goesOn("bad")
			r.stopWriting()
			r.drained()
			r.requireReceipts()
			r.requireSeries("good", r.read("good"), nil)
			after := r.read("bad")
			if s.gone {
				r.requireSeries("bad", after, first)
			} else {
				r.requireSeries("bad", append(before, after...), nil)
				r.requireFound("bad", r.sentOf("bad"), append(before, after...))
			}
			t.Logf("%d units, log of %d lines", r.units, strings.Count(r.log.String(), "\n"))
		})
	}
}
