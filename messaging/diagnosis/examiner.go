package diagnosis

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// Examiner is a broker that an operator can have examined.
type Examiner interface {
	// Examine looks at the connection to the broker and at its topics, and changes nothing. A broker that is away is a finding of the check
	// [Connection], and ends the examination. An error means that something could not be looked at, because a right is missing for example; the
	// findings until then come with it. Examine ends by itself within half a minute when the broker gives no answer.
	Examine(ctx context.Context, e Examination) ([]Finding, error)
}

// Examination is what an [Examiner] looks at, and what it has to know about the service. The zero value looks at all topics.
type Examination struct {
	// Topics are the logical topics to look at. Default: all topics that belong to the configuration of the adapter, as far as the broker lists
	// them.
	Topics []string
	// Source is the name of the service. Default: empty, it is not known.
	Source string
	// Prefix is the prefix of the service's topics. It is part of their names. Default: empty, there is none, or it is not known.
	Prefix string
	// Remembers is how long the inbox of the service recognizes a message that comes again; -1 means for ever. Default: it is not known, and
	// nothing is compared with it.
	Remembers time.Duration
	// Owners has the service that each consumer belongs to, by the name of the consumer, as the database of the service has it.
	Owners map[string]string
	// CutOff are subscriptions, by topic and name, whose processes report that they lack connections. That is a finding already, and the advice to
	// start another process would not help.
	CutOff []messaging.Subscription
	// TakeOver returns "" if the installation is the database of this service, and otherwise the statement with which this database takes the place
	// of the other one. Default: nil, installations are not compared.
	TakeOver func(ctx context.Context, installation string) (statement string, err error)
}
