// Package quietlog writes one line a minute about a failure that happens again and again.
//
// Records of WARN and above are put into groups. The first record of a group is written at once. After that, only the latest record of each
// interval is written, with the number of records and the time of the first. When no record has come for a while, a line at INFO says so. So an
// outage has one line when it begins, one line a minute while it lasts, and one line when it is over, however many messages, requests and
// connections it hits.
//
// A group contains the records with one cause, at one place:
//
//   - If the database or the broker is away for the whole process, that is one group for each level. See [Away].
//   - All lines of one consumer with one reason are one group. The reason is the text of the error in the form that package cause gives it. For a
//     line at ERROR the message counts too, because each such message asks for another action.
//   - Otherwise the group is the message, the reason, and the attributes that name a place: the topic, the route, the task. For a line without an
//     error all attributes count.
//
// Ids, keys, tenants, numbers and times do not distinguish groups: they have so many values that the log would be flooded again.
//
// [Every] is for lines that somebody wants to find one by one. There is no goroutine, and nothing to close. [Flush] writes the lines that were
// counted and are not written yet.
//
// Read first: handler.go:New.
package quietlog
