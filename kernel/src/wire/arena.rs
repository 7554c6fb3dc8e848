//! What has come on all connections since the last decode: sockets' bytes are copied here once.
//!
//! Owns: the bytes, and whose they are. Never: looks into them.

use crate::ids::Connection;
use crate::limits::TURN_BYTES_MAXIMUM;
use std::mem;
use std::ops::Range;

/// Bytes of one connection in the arena.
#[derive(Debug)]
pub(super) struct Piece {
    pub connection: Connection,
    pub range: Range<usize>,
}

/// The bytes of the next turn.
#[derive(Debug, Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Arena {
    /// True if nothing has come.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// True if a turn holds so many bytes more.
    pub fn has_room(&self, count: usize) -> bool {
        self.bytes.len().saturating_add(count) <= TURN_BYTES_MAXIMUM
    }

    /// Takes what `fill` appends; returns how many bytes that were.
    pub fn put(&mut self, connection: Connection, fill: impl FnOnce(&mut Vec<u8>)) -> usize {
        let start = self.bytes.len();
        fill(&mut self.bytes);
        let end = self.bytes.len();
        match self.pieces.last_mut() {
            Some(last) if last.connection == connection && last.range.end == start => last.range.end = end,
            _ => self.pieces.push(Piece { connection, range: start..end }),
        }
        end - start
    }

    /// What one connection has here, in order.
    pub fn of(&self, connection: Connection) -> impl Iterator<Item = &[u8]> {
        let pieces = self.pieces.iter().filter(move |piece| piece.connection == connection);
        pieces.map(|piece| self.bytes.get(piece.range.clone()).unwrap_or_default())
    }

    /// What one connection has here is nobody's any more.
    pub fn forget(&mut self, connection: Connection) {
        self.pieces.retain(|piece| piece.connection != connection);
    }

    /// Hands over as much as the turn has room for: by exchange if nothing is in the turn, else behind what is there.
    /// Returns whose that is, and what has to wait.
    pub fn hand_over(&mut self, turn: &mut Vec<u8>) -> (Vec<Piece>, Vec<Piece>) {
        let mut pieces = mem::take(&mut self.pieces);
        if turn.is_empty() {
            mem::swap(turn, &mut self.bytes);
            return (pieces, Vec::new());
        }
        let (start, room) = (turn.len(), TURN_BYTES_MAXIMUM.saturating_sub(turn.len()));
        let left = pieces.split_off(pieces.partition_point(|piece| piece.range.end <= room));
        let end = pieces.last().map_or(0, |piece| piece.range.end);
        turn.extend_from_slice(self.bytes.get(..end).unwrap_or_default());
        for piece in &mut pieces {
            piece.range = start + piece.range.start..start + piece.range.end;
        }
        (pieces, left)
    }

    /// The bytes of a piece that was not handed over.
    pub fn left(&self, piece: &Piece) -> &[u8] {
        self.bytes.get(piece.range.clone()).unwrap_or_default()
    }

    /// The list that was handed out is not needed any more: its allocation is. Nor is what was copied or left.
    pub fn reuse(&mut self, mut pieces: Vec<Piece>) {
        pieces.clear();
        self.pieces = pieces;
        self.bytes.clear();
    }
}
