package messaging

import "fmt"

// InstallationError says that a subscription belongs to another installation of the service: to another database. A service that is started with the
// wrong database would get a part of the messages of the right one.
type InstallationError struct {
	// Topic and Subscription are those that were asked for, Source the service, which is that of both.
	Topic, Subscription, Source string
	// Owner is the installation that the subscription belongs to, Installation the one that was refused.
	Owner, Installation string
	// Mend says how this installation takes the place of the other one.
	Mend string
}

func (e *InstallationError) Error() string {
	text := fmt.Sprintf("messaging: subscription %q of topic %q belongs to the service %q with another database (installation %s), this database is "+
		"installation %s, and each would get a part of the messages: correct the address of the database (ONCEBOX_DATABASE_URL, ONCEBOX_SCHEMA), "+
		"or give the other service another name (ONCEBOX_SOURCE) and its consumers others", e.Subscription, e.Topic, e.Source, e.Owner, e.Installation)
	if e.Mend != "" {
		text += "; if this database has taken the place of the other one for good: " + e.Mend
	}
	return text
}
