//! A batch under way: which operations are where, what of them is left to move.
//!
//! Here a transfer that came short goes on, one larger than a request is cut, and memory that direct I/O can't
//! use, or not well, is copied. A completion counts for the request that it names and for no other. Whatever ends a batch,
//! a panic of the caller's too: nothing is given up before the kernel is done with its memory.
//! On error: told with the operation.
#![allow(unsafe_code, reason = "hands memory to the engine and waits until it is given back")]

use super::aligned::{Bounce, Bounces, MOST};
use super::engine::{Lane, Request};
use super::{Op, Run};
use std::io;

/// How often in a row a request that the kernel put off is asked again.
const PATIENCE: u32 = 1000;

/// An operation and what is left of it.
struct Flight<'m> {
    op: Op<'m>,
    id: u64,
    bounce: Option<Bounce>,
    /// What is left; the first `sent` of them are with the engine. Never reallocated while they are.
    runs: Vec<Run>,
    sent: usize,
    offset: u64,
    put_off: u32,
}

/// All operations of one batch that are under way.
pub struct Flights<'d, 'm> {
    lane: Box<dyn Lane + 'd>,
    limits: (usize, usize),
    bounces: &'d Bounces,
    /// Bytes of them in use here.
    copied: usize,
    places: Vec<Option<Flight<'m>>>,
    free: Vec<usize>,
    /// Of requests made; the remainder by the number of places is the flight's.
    requests: u64,
}

impl<'d, 'm> Flights<'d, 'm> {
    pub fn new(lane: Box<dyn Lane + 'd>, limits: (usize, usize), bounces: &'d Bounces, depth: usize) -> Self {
        let places = (0..depth).map(|_| None).collect();
        Self { lane, limits, bounces, copied: 0, places, free: (0..depth).collect(), requests: 0 }
    }

    pub fn full(&self) -> bool {
        self.free.is_empty() || self.copied >= MOST
    }

    pub fn empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Begins an operation; gives it back if it has ended already.
    pub fn start(&mut self, op: Op<'m>) -> Option<(Op<'m>, io::Result<()>)> {
        let (runs, bounce) = match laid_out(&op, self.limits.0, self.bounces) {
            Ok((runs, _)) if runs.is_empty() => return Some((op, Ok(()))),
            Ok(laid) => laid,
            Err(error) => return Some((op, Err(error))),
        };
        let Some(place) = self.free.pop() else {
            return Some((op, Err(io::Error::other("more operations than the batch has places"))));
        };
        let offset = op.offset;
        self.copied += bounce.as_ref().map_or(0, Bounce::bytes);
        self.places[place] = Some(Flight { op, id: 0, bounce, runs, sent: 0, offset, put_off: 0 });
        self.send(place);
        None
    }

    /// Waits for a request. The operation whose last one it was, if so.
    pub fn finished(&mut self) -> Option<(Op<'m>, io::Result<()>)> {
        let Some((id, moved)) = self.lane.finished() else {
            std::thread::yield_now();
            return None;
        };
        let place = self.place(id)?;
        match self.places[place].as_mut()?.moved(moved) {
            Ok(false) => {
                self.send(place);
                None
            }
            Ok(true) => self.ended(place, Ok(())),
            Err(error) => self.ended(place, Err(error)),
        }
    }

    /// Whose completion it is; `None` for one that was told before.
    fn place(&self, id: u64) -> Option<usize> {
        let place = usize::try_from(id % self.places.len() as u64).ok()?;
        self.places[place].as_ref().filter(|flight| flight.id == id).map(|_| place)
    }

    fn send(&mut self, place: usize) {
        let count = self.places.len() as u64;
        let Some(flight) = &mut self.places[place] else { return };
        self.requests += 1;
        flight.id = self.requests * count + place as u64;
        flight.sent = window(&flight.runs, self.limits);
        let (write, file, runs) = (flight.op.write, &flight.op.file, &flight.runs[..flight.sent]);
        let request = Request { id: flight.id, write, file, offset: flight.offset, runs };
        // SAFETY: the flight keeps all of it, and stays until its completion has come: see `Drop`.
        unsafe { self.lane.start(request) };
    }

    fn ended(&mut self, place: usize, result: io::Result<()>) -> Option<(Op<'m>, io::Result<()>)> {
        let flight = self.places[place].take()?;
        self.free.push(place);
        if let Some(bounce) = flight.bounce {
            if !flight.op.write && result.is_ok() {
                bounce.spill(flight.op.runs());
            }
            self.copied -= bounce.bytes();
            self.bounces.give(bounce);
        }
        Some((flight.op, result))
    }
}

impl Drop for Flights<'_, '_> {
    fn drop(&mut self) {
        while !self.empty() {
            let Some((id, _)) = self.lane.finished() else {
                std::thread::yield_now();
                continue;
            };
            if let Some(place) = self.place(id) {
                self.places[place] = None;
                self.free.push(place);
            }
        }
    }
}

impl Flight<'_> {
    /// Takes note of what the request did; whether that was all.
    fn moved(&mut self, moved: io::Result<usize>) -> io::Result<bool> {
        let asked: usize = self.runs[..self.sent].iter().map(|run| run.bytes).sum();
        let moved = match moved {
            Ok(moved) => moved,
            Err(error) if put_off(&error) && self.put_off < PATIENCE => {
                self.put_off += 1;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if moved > asked {
            return Err(io::Error::other(format!("{moved} bytes moved where {asked} were asked for")));
        }
        // Direct I/O goes on at a boundary: what is behind the last one is moved again.
        let moved = moved - moved % self.op.file.step();
        if moved == 0 {
            let kind = if self.op.write { io::ErrorKind::WriteZero } else { io::ErrorKind::UnexpectedEof };
            return Err(io::Error::new(kind, format!("nothing moved at {} of the file", self.offset)));
        }
        (self.put_off, self.offset) = (0, self.offset + moved as u64);
        advance(&mut self.runs, moved);
        Ok(self.runs.is_empty())
    }
}

fn put_off(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// Runs as the file can take them: the operation's own, or an aligned buffer. None is longer than `most`.
fn laid_out(op: &Op<'_>, most: usize, bounces: &Bounces) -> io::Result<(Vec<Run>, Option<Bounce>)> {
    let bytes = op.bytes();
    if !op.file.takes(op.offset) {
        let reason = format!("offset {} is not a multiple of what the disk needs", op.offset);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let aligned = op.runs().iter().all(|run| op.file.fits(run));
    let bounce = match aligned {
        true if op.file.direct() => bounces.take_for(op.runs()),
        true => None,
        false => Some(bounces.take(bytes.next_multiple_of(op.file.step()))?),
    };
    let Some(mut bounce) = bounce else { return Ok((cut(op.runs(), most), None)) };
    if op.write {
        bounce.fill(op.runs());
    }
    Ok((cut(&[bounce.run()], most), Some(bounce)))
}

fn cut(runs: &[Run], most: usize) -> Vec<Run> {
    if runs.iter().all(|run| run.bytes <= most) {
        return runs.to_vec();
    }
    let pieces = |run: &Run| {
        let run = *run;
        let piece =
            move |from: usize| Run { at: run.at.wrapping_add(from), bytes: most.min(run.bytes - from) };
        (0..run.bytes).step_by(most).map(piece)
    };
    runs.iter().flat_map(pieces).collect()
}

/// How many of the first runs one request may have.
fn window(runs: &[Run], (most_bytes, most_runs): (usize, usize)) -> usize {
    let mut bytes = 0_usize;
    let fits = |run: &&Run| {
        bytes = bytes.saturating_add(run.bytes);
        bytes <= most_bytes
    };
    runs.iter().take(most_runs).take_while(fits).count().max(1)
}

/// Takes so many bytes off the front.
fn advance(runs: &mut Vec<Run>, mut bytes: usize) {
    let whole = runs
        .iter()
        .take_while(|run| {
            let gone = run.bytes <= bytes;
            bytes -= if gone { run.bytes } else { 0 };
            gone
        })
        .count();
    runs.drain(..whole);
    if let Some(first) = runs.first_mut() {
        *first = Run { at: first.at.wrapping_add(bytes), bytes: first.bytes - bytes };
    }
}
