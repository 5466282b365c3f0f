package messaging

// Naming is a broker that does not take every name which [event.ValidateTopic] takes. It is asked where an event is recorded and where a
// consumer is made: a name that the broker would refuse for good is an error there, and no dead letter later. It is asked for each
// event, so it only looks at the name. The errors match [event.ErrInvalid].
//
// [event.ValidateTopic]: https://pkg.go.dev/github.com/oncebox/oncebox/event#ValidateTopic
// [event.ErrInvalid]: https://pkg.go.dev/github.com/oncebox/oncebox/event#ErrInvalid
type Naming interface {
	// ValidateTopic checks the name of a topic.
	ValidateTopic(name string) error
	// ValidateSubscription checks the names of a subscription, that of its topic too.
	ValidateSubscription(s Subscription) error
}
