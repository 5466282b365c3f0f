package published

// ReadSent is the statement that reads a batch of a replay.
const ReadSent = readSent

// Choose is the statement that chooses what is replayed, and its arguments.
func Choose(filter Filter) (string, []any) {
	w := filter.where(0)
	return "SELECT s.child::bigint, s.place::text FROM {schema}.outbox_published s WHERE " + w.String() + " ORDER BY s.seq", w.Args
}
