package diagnosis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
)

// service is a service that knows its database and one consumer.
func service() diagnosis.Examination {
	return diagnosis.Examination{
		Source: "shop", Remembers: 24 * time.Hour, Owners: map[string]string{"billing": "shop"},
		TakeOver: func(_ context.Context, installation string) (string, error) {
			if installation == "here" {
				return "", nil
			}
			return "UPDATE " + installation, nil
		},
	}
}

func billing() diagnosis.Subscription {
	owner := diagnosis.Publisher{Source: "shop", Installation: "here"}
	return diagnosis.Subscription{Name: "billing", Owner: owner, Waiting: 3, Consumers: 1, Remove: "rm billing"}
}

func compare(t *testing.T, e diagnosis.Examination, topic diagnosis.Topic) []diagnosis.Finding {
	t.Helper()
	topic.Name = "order"
	found, err := e.Compare(t.Context(), []diagnosis.Topic{topic})
	require.NoError(t, err)
	return found
}

func TestATopicWithoutFaultsHasNoFindings(t *testing.T) {
	t.Parallel()
	audit := diagnosis.Subscription{Name: "audit", Owner: diagnosis.Publisher{Source: "audit", Installation: "there"}}
	topic := diagnosis.Topic{
		Retained: 24 * time.Hour, Subscriptions: []diagnosis.Subscription{billing(), audit},
		Publishers: []diagnosis.Publisher{{}, {"shop", "here"}, {"bank", "there"}},
	}
	require.Empty(t, compare(t, service(), topic))
	topic.Retained = -1
	require.Empty(t, compare(t, diagnosis.Examination{}, topic), "nothing is known about the service")
	forever := service()
	forever.Remembers = -1
	require.Empty(t, compare(t, forever, topic))
}

func TestEachFaultOfATopicIsFound(t *testing.T) {
	t.Parallel()
	subscription := func(change func(*diagnosis.Subscription)) diagnosis.Topic {
		s := billing()
		change(&s)
		return diagnosis.Topic{Subscriptions: []diagnosis.Subscription{s}}
	}
	for name, c := range map[string]struct {
		topic    diagnosis.Topic
		severity diagnosis.Severity
		says     string
	}{
		"kept for longer than remembered": {
			diagnosis.Topic{Retained: 25 * time.Hour}, diagnosis.Warning, "it keeps messages for 25h0m0s, but the inbox remembers them only for 24h0m0s",
		},
		"kept for ever": {diagnosis.Topic{Retained: -1}, diagnosis.Warning, "it keeps messages for ever, but"},
		"nobody receives": {
			subscription(func(s *diagnosis.Subscription) { s.Consumers, s.Unattended = 0, 2 }), diagnosis.Problem,
			"the subscription billing of the service shop has 3 messages that wait, and no consumer is connected: start a process of the service that runs " +
				"the consumer; if the consumer no longer exists and its messages may be lost: rm billing",
		},
		"nobody receives a part": {
			subscription(func(s *diagnosis.Subscription) { s.Owner, s.Waiting, s.Unattended = diagnosis.Publisher{}, 1, 2 }), diagnosis.Problem,
			"the subscription billing has 1 message that waits, and no consumer in 2 of its partitions",
		},
		"no order": {subscription(func(s *diagnosis.Subscription) { s.Unordered = true }), diagnosis.Warning, "is of type Shared"},
		"two services": {
			subscription(func(s *diagnosis.Subscription) { s.Owner.Source = "bank" }), diagnosis.Problem,
			"belongs to the service bank, and in this database the consumer of that name belongs to shop",
		},
		"two databases receive": {
			subscription(func(s *diagnosis.Subscription) { s.Owner.Installation = "other" }), diagnosis.Problem,
			"the service shop with another database (installation other) has the subscription billing",
		},
		"two databases publish": {
			diagnosis.Topic{Publishers: []diagnosis.Publisher{{"shop", "other"}}}, diagnosis.Problem, "(installation other) publishes to it: of two",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := compare(t, service(), c.topic)
			require.Len(t, found, 1)
			require.Equal(t, c.severity, found[0].Severity)
			require.Equal(t, diagnosis.Broker, found[0].Check)
			require.Contains(t, found[0].Problem+": "+found[0].Mend, "topic order: ")
			require.Contains(t, found[0].Problem+": "+found[0].Mend, c.says)
		})
	}
}

// Processes that lack connections are a finding already.
func TestASubscriptionThatIsCutOffIsNotToldTwice(t *testing.T) {
	t.Parallel()
	e := service()
	s := billing()
	s.Unattended = 1
	topic := diagnosis.Topic{Subscriptions: []diagnosis.Subscription{s}}
	e.CutOff = []messaging.Subscription{{Topic: "invoice", Name: "billing"}, {Topic: "order", Name: "mail"}}
	require.Len(t, compare(t, e, topic), 1)
	e.CutOff = append(e.CutOff, messaging.Subscription{Topic: "order", Name: "billing"})
	require.Empty(t, compare(t, e, topic))
}

func TestADatabaseThatDoesNotAnswerEndsTheComparison(t *testing.T) {
	t.Parallel()
	e := service()
	down := errors.New("down")
	e.TakeOver = func(context.Context, string) (string, error) { return "", down }
	s := billing()
	s.Unordered = true
	found, err := e.Compare(t.Context(), []diagnosis.Topic{{Name: "order", Subscriptions: []diagnosis.Subscription{s}}})
	require.ErrorIs(t, err, down)
	require.Len(t, found, 1, "what was found until then")
}
