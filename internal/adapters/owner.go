package adapters

import "github.com/oncebox/oncebox/messaging"

// Owner is the service that a subscription belongs to, and the database of that service. What is not known is empty.
type Owner struct{ Source, Installation string }

// The parts of an owner.
const (
	Source       = "source"
	Installation = "installation"
)

// Admits returns a permanent error if a subscription belongs to o, and s names another service, or another database of the same service. Without a
// service in s nothing is checked. mend returns what an operator does to give a part of the subscription to s; nil: the broker cannot do that.
func (o Owner) Admits(s messaging.Subscription, mend func(part string) string) error {
	if mend == nil {
		mend = func(string) string { return "" }
	}
	switch {
	case s.Source == "" || o.Source == "":
		return nil
	case o.Source != s.Source:
		return messaging.Permanent(&messaging.SourceError{Topic: s.Topic, Subscription: s.Name, Owner: o.Source, Source: s.Source, Mend: mend(Source)})
	case s.Installation != "" && o.Installation != "" && o.Installation != s.Installation:
		return messaging.Permanent(&messaging.InstallationError{
			Topic: s.Topic, Subscription: s.Name, Source: s.Source, Owner: o.Installation, Installation: s.Installation, Mend: mend(Installation),
		})
	default:
		return nil
	}
}
