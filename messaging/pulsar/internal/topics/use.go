package topics

import (
	"context"
	"net/http"
	"strings"

	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// storage is what the broker knows about the messages of a partition. A position is a ledger and an entry in it, such as 233:0. The entry is -1 before the
// first message.
type storage struct {
	Entries int64  `json:"numberOfEntries"`    //nolint:tagliatelle // Pulsar's
	Last    string `json:"lastConfirmedEntry"` //nolint:tagliatelle // Pulsar's
	Cursors map[string]struct {
		Settled string `json:"markDeletePosition"` //nolint:tagliatelle // Pulsar's
	} `json:"cursors"`
}

// isUnused reports whether nothing was stored. A message that is settled and deleted is gone with the next restart of the broker; the position of a
// subscription that has settled it stays.
func (s *storage) isUnused() bool {
	for _, c := range s.Cursors {
		if !strings.HasSuffix(c.Settled, ":-1") {
			return false
		}
	}
	return s.Entries == 0 && strings.HasSuffix(s.Last, ":-1")
}

// IsEmpty reports whether nothing was stored in a topic since its subscriptions exist.
func (a *Admin) IsEmpty(ctx context.Context, topic string, partitions int) (bool, error) {
	var all struct {
		Partitions map[string]*storage `json:"partitions"`
	}
	var alone storage
	path, into := a.topic(topic)+"/partitioned-internalStats", any(&all)
	if partitions == 0 {
		path, into = a.topic(topic)+"/internalStats", &alone
		all.Partitions = map[string]*storage{topic: &alone}
	}
	err := a.do(ctx, http.MethodGet, path, "", into)
	if answer.IsStatus(err, http.StatusNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, part := range all.Partitions {
		if !part.isUnused() {
			return false, nil
		}
	}
	return true, nil
}
