package diagnosis

import (
	"slices"
	"strings"

	"github.com/oncebox/oncebox/internal/misspelt"
)

const (
	// maxAlike is the largest number of topics that a finding names.
	maxAlike = 3
	// minAlike is the shortest name that is looked for behind a prefix. Many names end like a shorter one.
	minAlike = 3
)

// unused finds subscriptions of this service at a topic to which nobody publishes. That is so in a new installation, until the first event. It is also so
// if one of two services has another name for the topic, and no error says that: both topics exist, and no message comes.
func (e *Examination) unused(t *Topic, all []Topic) (found []Finding) {
	if !t.Unused || e.Source == "" {
		return nil
	}
	problem, mend := "", "nothing, if the first event is still to come; otherwise compare the name of the topic, with its "+
		"ONCEBOX_TOPIC_PREFIX, in this service "+
		"and in the service that publishes"
	if names := e.alike(t.Name, all); len(names) > 0 {
		problem = ", and there are messages in " + strings.Join(names, " and ")
		mend = "if that is the topic that was meant, correct the name or ONCEBOX_TOPIC_PREFIX in one of the services; " + mend
	}
	for n := range t.Subscriptions {
		if s := &t.Subscriptions[n]; s.Owner.Source == e.Source {
			found = append(found, Find(Broker, Warning, mend,
				"topic %s: as far as the broker knows, nobody has ever published to it, so the subscription %s of this service gets no message%s",
				t.Name, s.Name, problem))
		}
	}
	return found
}

// alike returns the topics in use with a name that somebody may confuse with this one: it has another prefix or none, or differs in a letter or two.
func (e *Examination) alike(name string, all []Topic) (names []string) {
	plain := strings.TrimPrefix(name, e.Prefix)
	for n := range all {
		other := all[n].Name
		near := misspelt.Distance(name, other) <= min(2, len(name)/3)
		prefixed := min(len(plain), len(other)) >= minAlike && (strings.HasSuffix(other, plain) || strings.HasSuffix(plain, other))
		if !all[n].Unused && other != name && (near || prefixed) {
			names = append(names, "topic "+other)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxAlike)]
}
