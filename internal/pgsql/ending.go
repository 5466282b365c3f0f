package pgsql

import (
	"bytes"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// How a transaction ended that was ended by the methods of database/sql.
const (
	endedByCommit   = "Commit"
	EndedByRollback = "Rollback"
)

// ending records how the transaction on a connection ended. It reads all messages on the connection (see wire.go), so it notices statements of
// every handle, at no cost for the server: the answer to a command contains its name, and ends with whether a transaction is open. Like the
// connection, it is not safe for concurrent use.
type ending struct {
	// follows: a transaction of database/sql is open on the connection; begun: its BEGIN was answered.
	follows, begun bool
	// unit: the transaction belongs to a unit of work.
	unit bool
	// how is how the transaction ended. "": it is open.
	how string

	// ends says that, by its text, one of the statements whose answers are awaited may end a transaction.
	ends    bool
	awaited int
	// named are the prepared statements that end a transaction.
	named map[string]struct{}
}

// follow begins to observe a transaction. Its BEGIN has not been sent yet.
func (e *ending) follow(unit bool) { e.follows, e.begun, e.unit, e.how = true, false, unit, "" }

// leave stops following a transaction that its owner ends.
func (e *ending) leave(how string) {
	if e.follows = false; e.how == "" {
		e.how = how
	}
}

// refusal returns the error for a statement in a transaction that somebody has ended. It refuses statements in a unit of work, and those of this
// module.
func (e *ending) refusal(ours bool) error {
	if e == nil || !e.follows || e.how == "" || !e.unit && !ours {
		return nil
	}
	return &pgerr.EndedError{How: e.how}
}

// asked takes a message of this side. The name in the answer shows which command has ended a transaction, except for ROLLBACK: that is also the
// name of ROLLBACK TO SAVEPOINT, and the answer to the COMMIT of a failed transaction. So the text of the statement is checked as well.
func (e *ending) asked(kind byte, body []byte) {
	switch kind {
	case 'Q': // a script
		e.awaited++
		e.ends = e.ends || endsTx(body)
	case 'P':
		name, text, _ := bytes.Cut(body, []byte{0})
		if endsTx(text) {
			if e.named == nil {
				e.named = map[string]struct{}{}
			}
			e.named[string(name)] = struct{}{}
		} else if e.named != nil {
			delete(e.named, string(name))
		}
	case 'B':
		if e.named == nil {
			return
		}
		_, body, _ = bytes.Cut(body, []byte{0}) // the portal
		name, _, _ := bytes.Cut(body, []byte{0})
		if _, is := e.named[string(name)]; is {
			e.ends = true
		}
	case 'S', 'F':
		e.awaited++
	}
}

// answered takes a message of the server.
func (e *ending) answered(kind byte, body []byte) {
	switch kind {
	case 'C':
		tag, _, _ := bytes.Cut(body, []byte{0})
		switch string(tag) {
		case "BEGIN", "START TRANSACTION":
			e.begun = true
		case commitTag, "PREPARE TRANSACTION":
			e.note(string(tag))
		case "ROLLBACK":
			if e.ends || e.awaited == 0 { // pgx sends unprepared batches past the writer that is observed here
				e.note("ROLLBACK")
			}
		}
	case 'Z':
		if bytes.Equal(body, []byte{'I'}) {
			e.note("ROLLBACK")
		}
		if e.awaited--; e.awaited <= 0 {
			e.awaited, e.ends = 0, false
		}
	}
}

// note keeps the first way in which the transaction ended. Later ones belong to another transaction.
func (e *ending) note(how string) {
	if e.follows && e.begun && e.how == "" {
		e.how = how
	}
}

// endsTx reports whether a text has a statement that ends a transaction. Each statement begins at the start or behind a semicolon. Because of a
// semicolon within a literal it may report a statement that does not exist, but it never misses one.
func endsTx(text []byte) bool {
	for more := true; more; _, text, more = bytes.Cut(text, []byte{';'}) {
		word, rest := firstWord(text)
		second, rest := firstWord(rest)
		switch {
		case is(word, "commit"), is(word, "end"), is(word, "abort"), is(word, "prepare") && is(second, "transaction"):
			return true
		case !is(word, "rollback"):
			continue
		case is(second, "work"), is(second, "transaction"):
			second, _ = firstWord(rest)
		}
		if !is(second, "to") {
			return true
		}
	}
	return false
}

// is compares a keyword without regard to case, as SQL does.
func is(word []byte, keyword string) bool { return bytes.EqualFold(word, []byte(keyword)) }

// firstWord returns the letters that a text begins with, behind blanks and comments.
func firstWord(text []byte) (word, rest []byte) {
	text = withoutComments(text)
	n := 0
	for n < len(text) && (text[n]|0x20 >= 'a' && text[n]|0x20 <= 'z' || text[n] == '_') {
		n++
	}
	return text[:n], text[n:]
}

// withoutComments returns a text from its first character on that is neither a blank nor part of a comment. Comments can be nested.
func withoutComments(text []byte) []byte {
	for {
		text = bytes.TrimLeft(text, " \t\r\n\f\v")
		switch {
		case bytes.HasPrefix(text, []byte("--")):
			end := bytes.IndexAny(text, "\r\n") // each of them ends it
			if end < 0 {
				return nil
			}
			text = text[end:]
		case bytes.HasPrefix(text, []byte("/*")):
			text = withoutComment(text)
		default:
			return text
		}
	}
}

// withoutComment returns the text after the comment that it begins with.
func withoutComment(text []byte) []byte {
	depth := 0
	for len(text) > 0 {
		switch {
		case bytes.HasPrefix(text, []byte("/*")):
			depth, text = depth+1, text[2:]
		case bytes.HasPrefix(text, []byte("*/")):
			if depth, text = depth-1, text[2:]; depth == 0 {
				return text
			}
		default:
			text = text[1:]
		}
	}
	return nil
}

// endedTx is a connection that knows how its transaction ended: a [conn], or a wrapper of tests around one.
type endedTx interface{ EndedTx() (how string) }

// EndedTx returns how the transaction on a driver's connection ended: the name of a command, [endedByCommit], [EndedByRollback], or "" if it is
// open, even if its BEGIN has been put off. exact says that the connection notices every end. Otherwise a transaction that was ended and followed
// by another one looks open.
func EndedTx(driverConn any) (how string, exact bool) {
	switch v := driverConn.(type) {
	case endedTx:
		return v.EndedTx(), true
	case native:
		if c := v.Conn(); !c.IsClosed() && c.PgConn().TxStatus() == 'I' {
			return "COMMIT or ROLLBACK", false
		}
	}
	return "", false
}
