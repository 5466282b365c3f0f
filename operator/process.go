package operator

import "time"

// Process is a process that runs parts of a service, as it describes itself.
type Process struct {
	// ID is another one each time that the program starts, Name its host and process id.
	ID, Name string
	Host     string
	// Service is the name of the service, see uow.Config.Source.
	Service string
	// Version is the version of the program, or the revision that it was built from, and Library that of oncebox. "": not known.
	Version, Library string
	// Parts are the parts that it runs: relay, consumers, cleaner.
	Parts []string
	// Relay is its name as an owner of lanes, "" if it runs no relay. Inbox is its id in the reports about its consumers.
	Relay, Inbox string
	// Broker is the kind of its broker, such as Pulsar; "" if it has none.
	Broker string
	// BeganAt and SeenAt are when it began and was last seen, by the clock of the database.
	BeganAt, SeenAt time.Time
	// Alive: it was seen within the last minute. A process that has ended in order is not listed. A process that vanished is listed for a day.
	Alive bool
}
