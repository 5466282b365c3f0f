package state

import (
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/seek"
	"github.com/oncebox/oncebox/operator"
)

// Match is a message at one consumer that a search has found.
type Match struct {
	Key   operator.MessageRef
	Place Place
	// Envelope is the message without its payload. Of a message that is settled or tried only the key is kept.
	Envelope event.Envelope
	// At is as in [Located].
	At time.Time
	// By is the property that fits: "id", "aggregate id", "ordering key", "correlation id", "causation id" or "tenant".
	By string
}

// searchMessages searches what waits or is dead by all properties: it reads both tables from end to end, because no index fits. What is settled or tried is
// found by the beginning of its key, by the primary keys.
func searchMessages() string {
	// An id of another system is no UUID, and the key of its message is a hash.
	match := `coalesce(CASE WHEN r.message_id = $3::text THEN '` + string(seek.ByID) + `' END, ` + seek.Match("r.message_key", "r.event_metadata::text") + `)`
	return `
SELECT {message read}, place, at, by FROM (
	SELECT {message but payload}, '` + string(PlaceParked) + `' AS place, parked_at AS at, ` + match + ` AS by FROM {schema}.inbox_parked r
	UNION ALL
	SELECT {message but payload}, '` + string(PlaceDead) + `', died_at, ` + match + ` FROM {schema}.inbox_dead r
	UNION ALL
	(SELECT {message absent}, '` + string(PlaceSettled) + `', processed_at, '` + string(seek.ByID) + `'
		FROM {schema}.inbox
		WHERE message_key BETWEEN $1::uuid AND $2::uuid ORDER BY message_key LIMIT $6::int)
	UNION ALL
	(SELECT {message absent}, '` + string(PlaceTried) + `', tried_at, '` + string(seek.ByID) + `'
		FROM {schema}.inbox_attempt
		WHERE message_key BETWEEN $1::uuid AND $2::uuid ORDER BY message_key LIMIT $6::int)) m
WHERE by IS NOT NULL ORDER BY at DESC, message_key LIMIT $6::int`
}
