package diagnosis_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging/diagnosis"
)

// consumed is a topic that a service subscribes to.
func consumed(name, source string, unused bool) diagnosis.Topic {
	s := diagnosis.Subscription{Name: "mail", Owner: diagnosis.Publisher{Source: source, Installation: "here"}, Consumers: 1}
	return diagnosis.Topic{Name: name, Subscriptions: []diagnosis.Subscription{s}, Unused: unused}
}

// Only a subscription of this service is reported, and the finding is no alarm: a new installation has such topics.
func TestATopicToWhichNobodyPublishesIsAWarning(t *testing.T) {
	t.Parallel()
	e := service()
	found, err := e.Compare(t.Context(), []diagnosis.Topic{
		consumed("ticket", "shop", true), consumed("order", "shop", false), consumed("parcel", "bank", true), {Name: "lonely", Unused: true},
	})
	require.NoError(t, err)
	require.Equal(t, []diagnosis.Finding{{
		Check: diagnosis.Broker, Severity: diagnosis.Warning,
		Problem: "topic ticket: as far as the broker knows, nobody has ever published to it, so the subscription mail of this service gets no message",
		Mend: "nothing, if the first event is still to come; otherwise compare the name of the topic, with its ONCEBOX_TOPIC_PREFIX, in this service and in " +
			"the service that publishes",
	}}, found)
	e.Source = ""
	require.Empty(t, compare(t, e, consumed("", "shop", true)), "nothing is known about the service")
	require.Empty(t, compare(t, service(), consumed("", "", true)), "the subscription of another program")
}

// The topic that was meant is in use, and differs by its prefix or by a letter or two.
func TestTheTopicThatWasMeantIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		prefix, name string
		others       []string
		says         string
	}{
		{"", "ticket", []string{"blue.ticket", "order"}, "and there are messages in topic blue.ticket"},
		{"blue.", "blue.ticket", []string{"ticket"}, "and there are messages in topic ticket"},
		{"blue.", "blue.ticket", []string{"green.ticket"}, "and there are messages in topic green.ticket"},
		{"", "ticket", []string{"tickets"}, "and there are messages in topic tickets"},
		{"", "ticket", []string{"tikcet", "ticker"}, "and there are messages in topic ticker and topic tikcet"},
		{"", "ticket", []string{"a.ticket", "b.ticket", "c.ticket", "d.ticket"}, "in topic a.ticket and topic b.ticket and topic c.ticket"},
		{"", "ticket", []string{"order", "basket", "t"}, ""},
		{"blue.", "blue.ticket", []string{"blue.order", "order"}, ""},
		{"", "a", []string{"b"}, ""},
	} {
		e := service()
		e.Prefix = c.prefix
		all := []diagnosis.Topic{consumed(c.name, "shop", true), consumed(c.name+"z", "bank", true)} // no messages are in the second one
		for _, other := range c.others {
			all = append(all, diagnosis.Topic{Name: other})
		}
		found, err := e.Compare(t.Context(), all)
		require.NoError(t, err)
		require.Len(t, found, 1, "%v", c)
		if c.says == "" {
			require.NotContains(t, found[0].Problem, "there are messages", "%v", c)
			continue
		}
		require.Regexp(t, c.says+"$", found[0].Problem)
		require.Contains(t, found[0].Mend, "if that is the topic that was meant, correct the name or ONCEBOX_TOPIC_PREFIX in one of the services; nothing, if")
	}
}
